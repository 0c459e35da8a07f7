#include "engine/coordinator.h"

#include <algorithm>
#include <chrono>

#include "engine/agreement.h"
#include "engine/stalls.h"
#include "kinds.h"

namespace hvd {
namespace {

using wire::MessageType;

uint64_t to_ns(std::chrono::steady_clock::time_point time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

}  // namespace

Coordinator::Coordinator(int size, std::vector<Branch> branches, std::vector<wire::Channel> channels,
                         const hvd_knobs& knobs, Recorder* recorder, AbortSignal* abort, const Log& log)
    : Hub(std::move(channels), abort),
      size_(size),
      branches_(std::move(branches)),
      recorder_(recorder),
      log_(log),
      negotiation_(size, knobs),
      acknowledged_(static_cast<size_t>(size), 0),
      unfinished_(static_cast<size_t>(size), 0),
      busy_(static_cast<size_t>(size), 0),
      own_fusion_(knobs.fusion_threshold != Tuning().fusion_threshold) {
  start("hvd-coordinator");
}

void Coordinator::received(size_t channel, const uint8_t* data, size_t size) {
  const Branch& from = branches_[channel];
  RankSet ranks;
  wire::Message message;
  if (!open_frame(from, size_, &data, &size, &ranks, &message)) {
    abort_->raise(Status::unknown("The coordinator received a malformed message from rank " +
                                  std::to_string(from.rank) + ".")
                      .blame(from.rank));
  } else if (message.type == MessageType::kVotes) {
    for (const wire::Vote& vote : message.votes) handle(ranks, vote);
  } else {
    ranks.each([&](int rank) { handle(rank, message); });
  }
  for (const Negotiation::Question& question : negotiation_.take_questions()) {
    RankSet asked(size_);
    asked.add(question.rank);
    send_to(asked, wire::encode_id(MessageType::kResend, question.id), true);
  }
}

void Coordinator::handle(const RankSet& ranks, const wire::Vote& vote) {
  if (shutting_down_) return;
  const Clock::time_point now = Clock::now();
  if (recorder_->active() || log_.at(HVD_LOG_TRACE)) {
    const wire::Request* known = vote.request ? &*vote.request : negotiation_.remembered(vote.id);
    ranks.each([&](int rank) {
      if (rank != vote.last) record_ready(rank, known, vote.id, now);
    });
    record_ready(vote.last, known, vote.id, now);
  }
  negotiation_.votes(ranks, vote, now);
}

void Coordinator::handle(int rank, wire::Message& message) {
  const Clock::time_point now = Clock::now();
  switch (message.type) {
    case MessageType::kRequest:
    case MessageType::kResent:
      if (shutting_down_) return;
      record_ready(rank, &message.request, 0, now);
      if (message.type == MessageType::kRequest) {
        negotiation_.request(rank, std::move(message.request), now);
      } else {
        negotiation_.resent(rank, message.id, std::move(message.request), now);
      }
      return;
    case MessageType::kCached:
      if (shutting_down_) return;
      if (recorder_->active() || log_.at(HVD_LOG_TRACE))
        record_ready(rank, negotiation_.remembered(message.id), message.id, now);
      negotiation_.cached(rank, message.id, now);
      return;
    case MessageType::kDone:
      return operation_done_by(rank);
    case MessageType::kShutdown:
      return begin_shutdown(rank);
    case MessageType::kShutdownAck:
      return acknowledge(rank);
    default:
      return;
  }
}

void Coordinator::record_ready(int rank, const wire::Request* request, uint32_t id, Clock::time_point now) {
  if (request == nullptr) return;
  if (log_.at(HVD_LOG_TRACE))
    log_.trace("Rank " + std::to_string(rank) + " has " + described(*request) + " ready.");
  if (!recorder_->active()) return;
  recorder_->add(to_ns(now), RecordKind::kReady, recorder_->names().of(*request, id),
                 {0, static_cast<uint16_t>(request->process_set), 0}, static_cast<uint16_t>(request->kind), 0,
                 static_cast<uint64_t>(rank));
}

void Coordinator::log_release(const Negotiation::Release& release) const {
  const wire::Operation& operation = release.operation;
  const std::string to = " to ranks " + rank_ranges(*release.ranks);
  if (operation.code != HVD_OK)
    return log_.debug("Failure of '" + operation.name + "'" + to + ": " + operation.text);
  if (operation.items.empty()) return;
  const wire::Item& item = operation.items.front();
  const wire::Request* first = item.fresh ? &item.fresh->common : negotiation_.remembered(item.cached_id);
  const size_t more = operation.items.size() - 1;
  log_.debug("Released " + (first != nullptr ? described(*first) : "an operation") +
             (more > 0 ? " and " + std::to_string(more) + " more" : "") + to + ".");
}

// Also counts them, whether they are recorded or not.
void Coordinator::record_release(const wire::Operation& operation, Clock::time_point now) {
  const bool runs = operation.code == HVD_OK;
  const OperationNumber number = runs ? numbers_.next(operation.process_set)
                                      : OperationNumber{0, static_cast<uint16_t>(operation.process_set), 0};
  for (const wire::Item& item : operation.items)
    if (item.fresh && item.fresh->common.kind == HVD_ADD_PROCESS_SET)
      numbers_.added(static_cast<int32_t>(item.fresh->result));
  if (!recorder_->active()) return;
  if (!runs)
    recorder_->add(to_ns(now), RecordKind::kFailed, recorder_->names().of(operation.name), number, 0, 0,
                   static_cast<uint64_t>(int64_t{operation.code}));
  for (size_t i = 0; i < operation.items.size(); ++i) {
    const wire::Item& item = operation.items[i];
    uint32_t name = recorder_->names().of_id(item.cached_id);
    if (name == 0) {
      const wire::Request* known = item.fresh ? &item.fresh->common : negotiation_.remembered(item.cached_id);
      if (known != nullptr) name = recorder_->names().of(*known, item.cached_id);
    }
    recorder_->add(to_ns(now), RecordKind::kRelease, name, number, static_cast<uint16_t>(i), 0,
                   operation.items.size());
  }
}

void Coordinator::run_without_release() {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_seconds_.bump_ns(0);  // it did not wait to be released
  (void)numbers_.next(0);
}

void Coordinator::operation_done_by(int rank) {
  auto index = static_cast<size_t>(rank);
  if (rank == 0 || unfinished_[index] == 0)
    return;  // rank 0 counts itself; its message only wakes this thread
  busy_[index] = --unfinished_[index] >= tuning_.ahead;
}

bool Coordinator::rank_0_is_busy() {
  auto busy = [this] { return sent_to_rank_0_ - executed_.load(std::memory_order_seq_cst) >= tuning_.ahead; };
  if (!busy()) return false;
  // Rank 0 may have caught up between the look and the flag; whoever sees it second acts.
  holding_.store(true, std::memory_order_seq_cst);
  return busy();
}

void Coordinator::release() {
  if (!negotiation_.has_ready() || shutting_down_) return;
  busy_[0] = rank_0_is_busy();
  std::vector<Negotiation::Release> releases = negotiation_.release(busy_);
  for (uint32_t id : negotiation_.take_evicted()) {
    if (log_.at(HVD_LOG_DEBUG)) log_.debug("Evicted number " + std::to_string(id) + " from the cache.");
    send_to_all(wire::encode_id(MessageType::kEvict, id));
  }
  const Clock::time_point now = Clock::now();
  if (!releases.empty() && recorder_->marks_cycles()) recorder_->add(to_ns(now), RecordKind::kCycle, 0, {});
  for (Negotiation::Release& release : releases) {
    if (autotune_) tune_before(release);
    if (release.since != Clock::time_point{})
      queue_seconds_.bump_ns(static_cast<uint64_t>(std::chrono::nanoseconds(now - release.since).count()));
    record_release(release.operation, now);
    if (log_.at(HVD_LOG_DEBUG)) log_release(release);
    // How far a set has come is known from its first member: rank 0 counts, others tell.
    const auto first = static_cast<size_t>(release.ranks->front());
    release.operation.report = first != 0 && release.operation.code == HVD_OK;
    if (release.operation.report) busy_[first] = ++unfinished_[first] >= tuning_.ahead;
    sent_to_rank_0_ += release.ranks->front() == 0;
    address_release(branches_, size_, *release.ranks, release.operation,
                    [this](size_t i, const auto& frame) { send(i, frame); });
  }
}

// ---- tuning

void Coordinator::autotune(Autotune::Options options, Autotune::Report report) {
  std::lock_guard<std::mutex> lock(mutex_);
  options.keep_fusion |= own_fusion_;
  autotune_ = std::make_unique<Autotune>(options, std::move(report));
  autotuning_ = true;
}

void Coordinator::tune_at_mark() {
  const uint64_t now = to_ns(Clock::now());
  std::lock_guard<std::mutex> lock(mutex_);
  if (!autotune_) return;
  if (autotune_->marked(now)) change_tuning();
  sent_by_visitor();
}

void Coordinator::tune_before(const Negotiation::Release& release) {
  std::vector<const wire::Request*> items;
  for (const wire::Item& item : release.operation.items) {
    const wire::Request* known = item.fresh ? &item.fresh->common : negotiation_.remembered(item.cached_id);
    if (known != nullptr) items.push_back(known);
  }
  if (autotune_->released(items, release.bytes, to_ns(Clock::now()))) change_tuning();
  if (!autotune_->finished()) return;
  autotuning_ = false;
  autotune_.reset();
}

// All ranks hear of it between the same two operations: releases have one order, and so has a connection.
void Coordinator::change_tuning() {
  const std::vector<uint8_t> choices(autotune_->choices().begin(), autotune_->choices().end());
  const int64_t threshold = tuning_.fusion_threshold;
  take_choices(choices, &tuning_);
  if (tuning_.fusion_threshold != threshold) negotiation_.set_fusion_threshold(tuning_.fusion_threshold);
  for (size_t rank = 1; rank < busy_.size(); ++rank) busy_[rank] = unfinished_[rank] >= tuning_.ahead;
  send_to_all(wire::encode_tuning(choices));
}

void Coordinator::send_to_all(const std::vector<uint8_t>& frame) {
  for (size_t i = 0; i < branches_.size(); ++i) send(i, frame);
}

void Coordinator::send_to(const RankSet& ranks, const std::vector<uint8_t>& frame, bool named) {
  address(branches_, ranks, named, frame, [this](size_t i, const auto& part) { send(i, part); });
}

void Coordinator::begin_shutdown(int rank) {
  if (shutting_down_) return;
  shutting_down_ = true;
  send_to_all(wire::encode_text(
      MessageType::kShutdown,
      "Horovod has been shut down: rank " + std::to_string(rank) + " called hvd.shutdown() or ended."));
}

void Coordinator::acknowledge(int rank) {
  auto index = static_cast<size_t>(rank);
  if (acknowledged_[index]) return;
  acknowledged_[index] = 1;
  if (++acknowledgements_ < acknowledged_.size()) return;
  closed_ = true;
  send_to_all(wire::encode_simple(MessageType::kClosed));
}

std::vector<Negotiation::Stalled> Coordinator::waiting(double limit) {
  const Clock::time_point now = Clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  if (shutting_down_ || std::chrono::duration<double>(now - negotiation_.waits_since(now)).count() < limit)
    return {};
  return negotiation_.stalled(now, 0);
}

bool Coordinator::closing() {
  std::lock_guard<std::mutex> lock(mutex_);
  return shutting_down_;
}

std::vector<Negotiation::Late> Coordinator::late() {
  std::lock_guard<std::mutex> lock(mutex_);
  return negotiation_.late();
}

}  // namespace hvd
