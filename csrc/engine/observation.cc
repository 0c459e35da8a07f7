// What an engine tells about itself: progress, metrics, stacks, its failure and its last operations.
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <utility>

#include "base/json.h"
#include "engine/engine.h"

namespace hvd {
namespace {

uint64_t processor_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(used.tv_nsec);
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void Engine::make_inspector(const hvd_knobs& knobs, std::vector<PeerName> peers) {
  Inspector::Sources sources;
  sources.waiting = [this](double limit) { return coordinator_->waiting(limit); };
  sources.closing = [this] { return coordinator_->closing(); };
  sources.late = [this] { return coordinator_->late(); };
  sources.own_progress = [this] { return progress(); };
  sources.ask = [this](int rank, uint32_t number, const std::string& reason) {
    if (rank == 0) return stacks_.ask(number, reason);
    if (watch_) watch_->post(rank, wire::encode_dump(number, reason));
  };
  inspector_ = std::make_unique<Inspector>(knobs, std::move(peers), std::move(sources), log_, &metrics_,
                                           &notices_, abort_.get());
}

// On the watch's thread.
Watch::Hooks Engine::hooks() {
  Watch::Hooks hooks;
  if (rank_ != 0) hooks.own_progress = [this] { return progress(); };
  hooks.progress = [this](int rank, const wire::Progress& progress) { inspector_->progress(rank, progress); };
  hooks.received = [this](int rank, const wire::Message& message) {
    if (message.type == wire::MessageType::kDump && rank_ != 0) stacks_.ask(message.id, message.text);
    if (message.type == wire::MessageType::kStacks && inspector_)
      inspector_->stacks(rank, message.id, message.how, message.text);
  };
  hooks.clock = [this](const wire::ClockOffset& root) {
    if (recorder_.active()) recorder_.clock(0, root.offset, root.round_trip);
    metrics_.rtt_ns.set(root.round_trip);
    metrics_.clock_offset_ns.set(static_cast<uint64_t>(root.offset));
  };
  return hooks;
}

wire::Progress Engine::progress() {
  wire::Progress progress;
  progress.steps = metrics_.steps.value();
  for (size_t kind = 0; kind < Metrics::kKinds; ++kind) {
    progress.operations += metrics_.operations[kind].value();
    progress.bytes += metrics_.bytes[kind].value();
  }
  progress.blocked_ns = metrics_.blocked_ns.value();
  progress.cpu_ns = processor_time();
  progress.resident_bytes = resident_bytes();
  metrics_.resident_bytes.set(progress.resident_bytes);
  rates_.update({now_ns(), progress.blocked_ns, progress.cpu_ns, metrics_.bus_bytes(size_)}, &metrics_);
  progress.dropped = recorder_.dropped();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    progress.pending = pending_.size();
  }
  constexpr size_t kName = 96;  // what the longest name is cut to
  RecentOperations::Latest latest = recent_.latest(now_ns());
  progress.running_ns = latest.running;
  progress.idle_ns = latest.idle;
  progress.step_ns = metrics_.last_step_ns.value();
  progress.name = latest.name.substr(0, kName);
  return progress;
}

size_t Engine::metrics(uint64_t* values, size_t capacity) {
  Metrics::Elsewhere elsewhere;
  elsewhere.trace_dropped = recorder_.dropped();
  if (const Traffic* traffic = transport_->traffic()) {
    elsewhere.sent = traffic->sent.load(std::memory_order_relaxed);
    elsewhere.received = traffic->received.load(std::memory_order_relaxed);
  }
  if (hub_) {
    elsewhere.control_sent = hub_->frames_sent();
    elsewhere.control_received = hub_->frames_received();
  }
  if (coordinator_) elsewhere.queue_seconds = &coordinator_->queue_seconds();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    elsewhere.pending = pending_.size();
  }
  return metrics_.values(elsewhere, values, capacity);
}

std::vector<Summary> Engine::summaries() {
  if (inspector_) return inspector_->summaries();
  Summary own;
  own.progress = progress();
  own.heard = std::chrono::steady_clock::now();
  own.progress.root = {static_cast<int64_t>(metrics_.clock_offset_ns.value()), metrics_.rtt_ns.value(), true};
  return {own};
}

void Engine::count_step(const char* name, std::unique_lock<std::mutex> lock) {
  const uint64_t now = now_ns();
  metrics_.steps.bump();
  const uint64_t step = metrics_.steps.value();
  if (last_step_ != 0) {
    metrics_.last_step_ns.set(now - last_step_);
    metrics_.step_seconds.bump_ns(now - last_step_);
  }
  last_step_ = now;
  lock.unlock();
  {
    std::lock_guard<std::mutex> shared(mutex_);
    metrics_.blocked_ns.add(called_back_.step_ended());
  }
  if (coordinator_) coordinator_->step_marked();
  if (recorder_.active()) recorder_.mark(name, HVD_MARK_STEP, step);
}

void Engine::count_run(const std::vector<AgreedTask>& tasks, uint64_t bytes, uint64_t begin, uint64_t end) {
  count_operation(tasks.front().agreement->common.kind, tasks.size(), bytes, begin, end);
  for (const AgreedTask& each : tasks)
    if (each.task) metrics_.negotiation_seconds.bump_ns(begin - std::min(begin, each.task->submitted));
}

void Engine::count_operation(int32_t kind, size_t tensors, uint64_t bytes, uint64_t begin, uint64_t end) {
  const auto index = static_cast<size_t>(kind);
  metrics_.operations[index].bump();
  metrics_.tensors[index].bump(tensors);
  metrics_.bytes[index].bump(bytes);
  metrics_.operation_seconds[index][Metrics::size_class(bytes)].bump_ns(end - begin);
  metrics_.tensors_per_operation.bump(tensors);
  metrics_.tensors_per_operation.add_to_sum(tensors);
}

// Under mutex_: the task is no longer pending.
void Engine::count_callback(const Task& task) {
  if (task.unattended) metrics_.blocked_ns.add(called_back_.ended(now_ns()));
}

uint32_t Engine::ask_stacks(int rank, const std::string& reason) {
  if (inspector_) return inspector_->ask_stacks(rank, reason);
  if (rank >= 0 && rank != rank_) return 0;
  const uint32_t number = kOwnQuestion | ++own_questions_;
  stacks_.ask(number, reason);
  return number;
}

void Engine::log_process_set(const wire::Agreement& agreement) const {
  const wire::Request& common = agreement.common;
  const bool added = common.kind == HVD_ADD_PROCESS_SET;
  if ((!added && common.kind != HVD_REMOVE_PROCESS_SET) || !log_.at(HVD_LOG_INFO)) return;
  const std::string set = "process set " + std::to_string(agreement.result);
  const std::vector<int> ranks(common.numbers.begin(), common.numbers.end());
  log_.info(added ? "Added " + set + ": ranks " + rank_ranges(ranks) + "." : "Removed " + set + ".");
}

// The engine thread's last deed if the job fails. Each rank tells its last operations: where it was then is
// often the answer, unless the others go on. That is written at the end, since whoever reads it may be slow.
void Engine::fail() {
  constexpr size_t kTold = 10;
  const Status reason = abort_->reason();
  const std::string last = recent_.text(kTold, now_ns());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failed_ = !shutdown_sent_ && closed_.ok();  // else the end was near anyway
  }
  if (failed_) {
    metrics_.failures.add();
    notices_.push({HVD_EVENT_REPORT, rank_, 0, 0,
                   R"({"event": "failure", "rank": )" + std::to_string(rank_) + R"(, "reason": )" +
                       json_text(reason.text()) + R"(, "last": )" + json_text(last) + "}"});
  }
  {
    std::lock_guard<std::mutex> driver(driver_mutex_);  // an operation under way ends first
    fail_pending(reason);
  }
  if (!failed_) return;
  log_.debug("Aborted: " + reason.text());
  if (last.empty()) return;
  const std::string told = "The last operations here before the failure, the latest first: " + last + ".";
  if (elastic_) return log_.info(told);  // this rank goes on, and all others would say the same
  log_.warning(told);
}

}  // namespace hvd
