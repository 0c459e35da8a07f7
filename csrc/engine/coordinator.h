// Rank 0's thread that hears what every rank has ready and tells them what to run. The decisions are
// Negotiation's.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/abort_signal.h"
#include "base/log.h"
#include "engine/autotune.h"
#include "engine/branches.h"
#include "engine/hub.h"
#include "engine/metrics.h"
#include "engine/negotiation.h"
#include "engine/operation_numbers.h"
#include "engine/recorder.h"
#include "wire/channel.h"

namespace hvd {

class Coordinator : public Hub {
 public:
  // Of so many ranks; channels[i] leads to branches[i], the first one to rank 0's own engine.
  Coordinator(int size, std::vector<Branch> branches, std::vector<wire::Channel> channels,
              const hvd_knobs& knobs, Recorder* recorder, AbortSignal* abort, const Log& log);
  ~Coordinator() override { stop(); }

  // All that waits for some ranks, the oldest first; nothing if even the oldest has done so for less than
  // `limit` seconds.
  std::vector<Negotiation::Stalled> waiting(double limit);
  // Whether a shutdown has begun: nothing waits any more then.
  bool closing();
  // [rank]
  std::vector<Negotiation::Late> late();

  // Searches for better parameters from here on.
  void autotune(Autotune::Options options, Autotune::Report report);
  // The application has ended a step.
  void step_marked() {
    if (autotuning_.load(std::memory_order_relaxed)) tune_at_mark();
  }

  // From the moment that all had an operation ready to its release; for any thread.
  const Histogram& queue_seconds() const { return queue_seconds_; }

  // All ranks run an operation of the world without asking: it counts as one that was released.
  void run_without_release();
  // Rank 0's engine ran one operation. True if the coordinator holds some back and wants a kDone message.
  bool operation_done() {
    executed_.fetch_add(1, std::memory_order_seq_cst);
    return holding_.exchange(false, std::memory_order_seq_cst);
  }

 private:
  void received(size_t channel, const uint8_t* data, size_t size) override;
  void act() override { release(); }
  int rank_at(size_t channel) const override { return branches_[channel].rank; }
  bool closed() const override { return closed_; }
  void handle(int rank, wire::Message& message);
  void handle(const RankSet& ranks, const wire::Vote& vote);
  void record_ready(int rank, const wire::Request* request, uint32_t id,
                    std::chrono::steady_clock::time_point now);
  void record_release(const wire::Operation& operation, std::chrono::steady_clock::time_point now);
  void log_release(const Negotiation::Release& release) const;
  void operation_done_by(int rank);
  bool rank_0_is_busy();
  void release();
  void tune_at_mark();
  void tune_before(const Negotiation::Release& release);
  void change_tuning();
  void send_to_all(const std::vector<uint8_t>& frame);
  // See address().
  void send_to(const RankSet& ranks, const std::vector<uint8_t>& frame, bool named);
  void begin_shutdown(int rank);
  void acknowledge(int rank);

  // The hub's lock guards everything up to tuning_.
  const int size_;
  const std::vector<Branch> branches_;
  Recorder* recorder_;
  const Log log_;
  Negotiation negotiation_;
  OperationNumbers numbers_;
  Histogram queue_seconds_;
  bool shutting_down_ = false;
  bool closed_ = false;
  std::vector<uint8_t> acknowledged_;
  size_t acknowledgements_ = 0;
  int64_t sent_to_rank_0_ = 0;
  std::vector<int64_t> unfinished_;     // [rank]: operations it is to report the end of
  std::vector<uint8_t> busy_;           // [rank]: has enough to do
  std::unique_ptr<Autotune> autotune_;  // while it searches
  Tuning tuning_;
  const bool own_fusion_;  // somebody has chosen its threshold
  std::atomic<bool> autotuning_{false};
  std::atomic<int64_t> executed_{0};
  std::atomic<bool> holding_{false};
};

}  // namespace hvd
