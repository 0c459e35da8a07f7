#include "engine/engine.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/thread.h"
#include "engine/agreement.h"
#include "engine/relay.h"
#include "engine/request_check.h"
#include "kinds.h"

namespace hvd {
namespace {

using wire::MessageType;
using wire::Request;

// Does a request equal what this rank submitted before under the same name?
bool same_request(const Request& a, const Request& b) {
  return a.kind == b.kind && a.op == b.op && a.root_rank == b.root_rank && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.tensors == b.tensors && a.numbers == b.numbers;
}

uint64_t operation_bytes(const std::vector<AgreedTask>& tasks) {
  uint64_t bytes = 0;
  for (const AgreedTask& each : tasks) bytes += request_bytes(each.agreement->common);
  return bytes;
}

}  // namespace

Engine::Engine(Parts parts, Log log, std::unique_ptr<AbortSignal> abort)
    : rank_(parts.rank),
      size_(parts.size),
      log_(log),
      abort_(std::move(abort)),
      memory_(std::move(parts.memory)),
      heap_(std::move(parts.heap)),
      transport_(std::move(parts.transport)),
      meeting_(parts.meeting ? std::make_unique<Meeting>(parts.meeting, parts.rank, parts.size) : nullptr),
      executor_(transport_.get(), parts.rank, parts.size),
      recorder_(std::move(parts.recorded), parts.knobs.timeline_buffer, log_),
      stacks_(&notices_,
              [this](uint32_t number, int how, const std::string& text) {
                if (inspector_) return inspector_->stacks(0, number, how, text);
                if ((number & kOwnQuestion) != 0)
                  return notices_.push({HVD_EVENT_STACKS, rank_, number, how, text});
                watch_->post(0, wire::encode_stacks(number, static_cast<uint8_t>(how), text));
              }),
      descriptors_(std::move(parts.descriptors)),
      affinity_(parts.affinity),
      spin_(parts.spin),
      above_(parts.parents[static_cast<size_t>(parts.rank)]),
      elastic_(parts.knobs.elastic != 0),
      control_(std::move(parts.control)) {
  make_hub(parts);
  if (coordinator_ != nullptr) make_inspector(parts.knobs, std::move(parts.peers));
  const Watch::Timeouts silence{parts.knobs.peer_timeout_seconds, parts.knobs.host_timeout_seconds};
  if (!parts.watched.empty()) {
    abort_->set_patience(silence.patience());
    watch_ = std::make_unique<Watch>(rank_, parts.parents, std::move(parts.watched), silence, abort_.get(),
                                     hooks());
    watch_->start();
  }
  if (inspector_) inspector_->start();
  thread_ = start_thread("hvd-engine", [this] { run(); });
}

// A rank with others below it talks to its hub as they do.
void Engine::make_hub(Parts& parts) {
  std::vector<Branch> branches = branches_of(rank_, parts.parents);
  if (rank_ != 0 && branches.size() == 1) return;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw std::runtime_error(no_descriptor(errno).text());
  descriptors_.insert(descriptors_.end(), {pair[0], pair[1]});
  wire::Channel above = std::exchange(control_, wire::Channel(pair[0]));
  std::vector<wire::Channel> channels = std::move(parts.control_below);
  channels[0] = wire::Channel(pair[1]);
  own_rings_ = wire::make_control_rings(1);
  control_.use(wire::RingEnd::of_rank(*own_rings_, 0, 0));
  channels[0].use(wire::RingEnd::of_hub(*own_rings_, 0, 0));
  if (rank_ == 0) {
    auto coordinator = std::make_unique<Coordinator>(size_, std::move(branches), std::move(channels),
                                                     parts.knobs, &recorder_, abort_.get(), log_);
    coordinator_ = coordinator.get();
    hub_ = std::move(coordinator);
    return;
  }
  channels.push_back(std::move(above));
  hub_ =
      std::make_unique<Relay>(rank_, size_, std::move(branches), std::move(channels), above_, abort_.get());
}

Engine::~Engine() {
  shutdown();
  stacks_.stop();
  if (inspector_) inspector_->stop();
  watch_.reset();
  inspector_.reset();
  hub_.reset();
}

// ---- application threads

// Until a join is over this rank stands in for what others submit, and a set it has voted to remove is as
// good as gone: what it submitted now would be counted for something else.
Status Engine::check_restrictions(const Request& request) {
  auto over = [this](const std::shared_ptr<Task>& task) {
    auto found = pending_.find(operation_key(task->request.process_set, task->request.name));
    return found == pending_.end() || found->second != task;
  };
  restricting_.erase(std::remove_if(restricting_.begin(), restricting_.end(), over), restricting_.end());
  for (const auto& task : restricting_) {
    const std::string subject = described(request);
    if (task->request.kind == HVD_JOIN)
      return Status::invalid(subject + ": rank " + std::to_string(rank_) +
                             " has joined; it can submit operations again when join() has returned.");
    if (task->request.root_rank == request.process_set)
      return Status::invalid(subject + ": process set " + std::to_string(request.process_set) +
                             " is being removed; submit operations of it before that.");
  }
  return {};
}

Status Engine::submit(const hvd_request& request, hvd_handle* handle, bool waits) {
  Status status = check_request(request);
  if (!status.ok()) return status;
  if (request.unnamed != 0)
    return unnamed_.submit(request, joins_,
                           [&](const hvd_request& named) { return submit(named, handle, waits); });
  if (!waits && request.attended == 0) leave_alone(1);
  auto task = std::make_shared<Task>(request);
  std::vector<uint8_t> frame;
  std::unique_lock<std::mutex> sending(send_mutex_, std::defer_lock);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_.ok()) return closed_;
    if (abort_->raised()) return abort_->reason();  // which the driver has yet to hear
    status = complete_request(&task->request, executor_.process_sets(), rank_, size_);
    if (status.ok()) status = check_restrictions(task->request);
    if (!status.ok()) return status;
    std::string key = operation_key(task->request.process_set, task->request.name);
    auto [place, fresh] = pending_.try_emplace(key, task);
    if (!fresh)
      return Status::invalid("An operation named '" + task->request.name +
                             "' is still pending; names must be unique among pending operations.");
    if (meeting_ && (waits || task->request.kind == HVD_JOIN)) go_away(*task);
    const bool removes = task->request.kind == HVD_REMOVE_PROCESS_SET && task->request.root_rank != 0;
    if (task->request.kind == HVD_JOIN || removes) restricting_.push_back(task);
    auto known = cache_ids_.find(key);
    task->submitted = now_ns();
    task->unattended = task->has_callback() && !waits;
    if (task->unattended) called_back_.submitted(task->submitted);
    if (known != cache_ids_.end()) {
      const Remembered& remembered = cache_.at(known->second);
      if (remembered.mine && same_request(remembered.request, task->request)) task->sent_as = known->second;
    }
    *handle = next_handle_++;
    task->handle = *handle;
    handles_.emplace(*handle, task);
    (task->sent_as != 0 ? metrics_.cache_hits : metrics_.cache_misses).bump();
    if (recorder_.active()) {
      task->recorded = recorder_.names().of(task->request, task->sent_as);
      task->wait_begun = waits;
      recorder_.add(task->submitted, waits ? RecordKind::kSubmitAndWait : RecordKind::kSubmit, task->recorded,
                    {waits ? thread_number() : uint32_t{task->unattended},
                     static_cast<uint16_t>(task->request.process_set), 0},
                    static_cast<uint16_t>(task->request.kind), request_bytes(task->request),
                    static_cast<uint64_t>(*handle));
    }
    frame = task->sent_as != 0 ? wire::encode_id(MessageType::kCached, task->sent_as)
                               : wire::encode_request(task->request);
    sending.lock();  // announced in the order of the checks, whichever thread is faster
  }
  if (log_.at(HVD_LOG_TRACE)) log_.trace("Submitted " + described(task->request) + ".");
  announce(frame, std::move(sending));
  return {};
}

void Engine::leave_alone(uint32_t more) {
  left_alone_.fetch_add(more, std::memory_order_relaxed);
  if (hub_) hub_->leave_alone(more);
}

int Engine::help(hvd_handle handle, double seconds) {
  const std::shared_ptr<Task> task = this->task(handle);
  if (!task || task->finished()) return HVD_OK;  // with `done` there is no handle after the end
  const int code = Task::in_callback() ? HVD_IN_PROGRESS : wait_as_driver(*task, seconds);
  if (code != HVD_OK) leave_alone(1);
  return code;
}

void Engine::announce(const std::vector<uint8_t>& frame) {
  announce(frame, std::unique_lock<std::mutex>(send_mutex_));
}

void Engine::announce(const std::vector<uint8_t>& frame, std::unique_lock<std::mutex> sending) {
  if (control_.fd() < 0) return;
  control_.send(frame);  // if the connection is broken, the watch says so to all pending tasks
  const bool unsent = control_.has_unsent();
  sending.unlock();
  if (unsent) wake_.set();
}

std::shared_ptr<Task> Engine::task(hvd_handle handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

void Engine::release(hvd_handle handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  handles_.erase(handle);
}

void Engine::shutdown() {
  std::lock_guard<std::mutex> only_one(shutdown_mutex_);
  if (!thread_.joinable()) return;
  bool send = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    send = shutdown_sent_ = closed_.ok() && !abort_->raised();
  }
  if (send) announce(wire::encode_text(MessageType::kShutdown, ""));
  thread_.join();
  recorder_.stop(failed_ ? abort_->reason().text() : "");
  stacks_.stop();
  notices_.close();
}

void Engine::abort(const std::string& reason) { abort_->raise(Status::unknown(reason).blame(rank_)); }

Status Engine::connect(int rank, int fd, const LinkKeys* keys) {
  Status status = transport_->connect(rank, fd, keys);
  std::lock_guard<std::mutex> lock(mutex_);
  if (status.ok()) descriptors_.push_back(fd);
  return status;
}

void Engine::mark(const char* name, int phase) {
  if (phase < HVD_MARK_INSTANT || phase > HVD_MARK_STEP) return;
  if (phase == HVD_MARK_STEP) {
    std::unique_lock<std::mutex> lock(step_mutex_);
    if (step_ends_.by_program()) count_step(name, std::move(lock));
  } else if (recorder_.active()) {
    recorder_.mark(name, phase, 0);
  }
}

void Engine::end_step(int64_t kind) {
  std::unique_lock<std::mutex> lock(step_mutex_);
  if (step_ends_.by_adapter(kind)) count_step("step", std::move(lock));
}

Status Engine::autotune(Autotune::Options options) {
  if (!coordinator_) return Status::invalid("Only rank 0 searches for parameters; the others follow it.");
  options.parts = transport_->tuned_parts();
  coordinator_->autotune(
      options, [this](const std::string& json) { notices_.push({HVD_EVENT_TUNING, rank_, 0, 0, json}); });
  return {};
}

void Engine::after_fork_in_child() {
  // The threads do not exist here and the locks may be held by them: touch only plain numbers.
  for (int fd : descriptors_) close(fd);
  close(wake_.fd());
}

std::vector<int> Engine::process_set_ids() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> ids;
  for (const auto& set : executor_.process_sets()) ids.push_back(set.first);
  return ids;
}

bool Engine::process_set_ranks(int id, std::vector<int>* ranks) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = executor_.process_sets().find(id);
  if (found == executor_.process_sets().end()) return false;
  *ranks = found->second.ranks;
  return true;
}

// ---- the driver: what the coordinator releases

void Engine::handle(const uint8_t* data, size_t size) {
  wire::Message message;
  Tuning tuning;
  if (!wire::decode(data, size, &message) ||
      (message.type == MessageType::kTuning && !take_choices(message.choices, &tuning))) {
    abort_->raise(Status::unknown("Rank " + std::to_string(rank_) +
                                  " received a malformed message from the coordinator."));
    return;
  }
  switch (message.type) {
    case MessageType::kOperation:
      run_operation(message.operation);
      if (coordinator_ ? coordinator_->operation_done() : is_to_report(message.operation))
        announce(wire::encode_simple(MessageType::kDone));
      return;
    case MessageType::kTuning:
      return transport_->tune(tuning);
    case MessageType::kResend:
      return resend(message.id);
    case MessageType::kEvict: {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = cache_.find(message.id);
      if (found == cache_.end()) return;
      auto named = cache_ids_.find(found->second.key);
      if (named != cache_ids_.end() && named->second == message.id) cache_ids_.erase(named);
      cache_.erase(found);
      metrics_.cache_evictions.bump();
      return;
    }
    case MessageType::kShutdown:
      return begin_closing(message.text);
    case MessageType::kClosed:
      finished_ = true;
      wake_.set();  // the engine thread may be listening for this very message
      return;
    default:
      return;
  }
}

bool Engine::is_to_report(const wire::Operation& operation) const {
  return operation.report && executor_.process_sets().at(operation.process_set).ranks.front() == rank_;
}

void Engine::run_operation(wire::Operation& operation) {
  if (operation.code != HVD_OK) {
    auto task = take_pending(operation_key(operation.process_set, operation.name));
    if (task) finish(task, Status(operation.code, operation.text));
    return;
  }
  if (operation.items.empty()) return;
  std::vector<AgreedTask> tasks;
  tasks.reserve(operation.items.size());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (wire::Item& item : operation.items) {
      AgreedTask each;
      std::string key;
      if (item.cached_id != 0) {
        Remembered& remembered = cache_.at(item.cached_id);
        remembered.meeting.ran();
        each.agreement = remembered.agreement;
        key = remembered.key;
      } else {
        each.agreement = std::make_shared<const wire::Agreement>(std::move(*item.fresh));
        key = operation_key(each.agreement->common.process_set, each.agreement->common.name);
      }
      auto found = pending_.find(key);
      // The name stays pending until the task is finished; a joined rank has none.
      if (found != pending_.end()) each.task = found->second;
      if (each.task && each.task->request.kind != HVD_JOIN) come_back(*each.task);
      if (item.cached_id == 0 && each.agreement->id != 0) {
        Remembered& remembered = cache_[each.agreement->id];
        remembered.agreement = each.agreement;
        remembered.key = key;
        remembered.mine = each.task != nullptr;
        if (each.task) remembered.request = each.task->request;
        cache_ids_[key] = each.agreement->id;
      }
      tasks.push_back(std::move(each));
    }
  }
  const OperationNumber number = numbers_.next(operation.process_set);
  const uint64_t begin = now_ns(), bytes = operation_bytes(tasks);
  std::optional<RecordedCourse> course;
  if (recorder_.active()) {
    record_run(number, tasks, begin, bytes);
    course.emplace(recorder_, number, recorded_name(tasks.front()));
  }
  recent_.begin(tasks.front().agreement, tasks.size(), bytes, begin);
  Status status = executor_.run(tasks);
  const uint64_t end = now_ns();
  count_run(tasks, bytes, begin, end);
  if (course) {
    recorder_.add(end, RecordKind::kRunEnd, recorded_name(tasks.front()), number,
                  static_cast<uint16_t>(course->algorithm()), bytes,
                  static_cast<uint64_t>(int64_t{status.code()}));
    course.reset();
  }
  if (!status.ok()) {
    abort_->raise(status);
    return;  // fail() ends everything pending, these included
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    executor_.commit_process_set(tasks.front());
    if (tasks.front().agreement->common.kind == HVD_JOIN) joins_++;  // before anyone hears of it
    for (const AgreedTask& each : tasks) {
      if (!each.task) continue;
      pending_.erase(operation_key(each.task->request.process_set, each.task->request.name));
      count_callback(*each.task);
    }
  }
  const wire::Agreement& first = *tasks.front().agreement;
  if (first.common.kind == HVD_ADD_PROCESS_SET) {
    unnamed_.restart(static_cast<int>(first.result));
    numbers_.added(static_cast<int32_t>(first.result));
  }
  if (rank_ == 0) log_process_set(first);
  // Before anyone goes on, who may end this process; but a callback that hangs is part of the operation.
  const bool calls_back = std::any_of(tasks.begin(), tasks.end(), [](const AgreedTask& each) {
    return each.task && each.task->has_callback();
  });
  if (!calls_back) recent_.end(end);
  for (const AgreedTask& each : tasks)
    if (each.task) finish(each.task, {});
  if (calls_back) recent_.end(end);
}

uint32_t Engine::recorded_name(const AgreedTask& task) {
  if (task.task && task.task->recorded != 0) return task.task->recorded;
  return recorder_.names().of(task.agreement->common, task.agreement->id);
}

void Engine::record_run(OperationNumber number, const std::vector<AgreedTask>& tasks, uint64_t begin,
                        uint64_t bytes) {
  const uint32_t name = recorded_name(tasks.front());
  const auto kind = static_cast<uint16_t>(tasks.front().agreement->common.kind);
  auto handle = [](const AgreedTask& each) {
    return static_cast<uint64_t>(each.task ? each.task->handle : 0);
  };
  if (tasks.size() == 1)
    return recorder_.add(begin, RecordKind::kRunAlone, name, number, kind, bytes, handle(tasks.front()));
  recorder_.add(begin, RecordKind::kRunBegin, name, number, kind, bytes, tasks.size());
  for (const AgreedTask& each : tasks)
    recorder_.add(begin, RecordKind::kTensor, recorded_name(each), number, 0,
                  request_bytes(each.agreement->common), handle(each));
}

std::shared_ptr<Task> Engine::take_pending(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = pending_.find(key);
  if (found == pending_.end()) return nullptr;
  std::shared_ptr<Task> task = std::move(found->second);
  pending_.erase(found);
  count_callback(*task);
  return task;
}

void Engine::resend(uint32_t id) {
  std::vector<uint8_t> frame;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& entry : pending_) {
      if (entry.second->sent_as != id) continue;
      entry.second->sent_as = 0;
      frame = wire::encode_resent(id, entry.second->request);
      break;
    }
  }
  if (!frame.empty()) announce(frame);
}

void Engine::begin_closing(const std::string& reason) {
  fail_pending(Status::unknown(reason));
  if (watch_) watch_->expect_closing();
  announce(wire::encode_simple(MessageType::kShutdownAck));
}

void Engine::fail_pending(const Status& reason) {
  std::vector<std::shared_ptr<Task>> tasks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_.ok()) closed_ = reason;
    for (auto& entry : pending_) {
      count_callback(*entry.second);
      tasks.push_back(std::move(entry.second));
    }
    pending_.clear();
  }
  for (const auto& task : tasks) finish(task, reason);
}

void Engine::finish(const std::shared_ptr<Task>& task, Status status) {
  come_back(*task);
  task->finish(std::move(status));
  if (task->has_callback()) release(task->handle);
}

}  // namespace hvd
