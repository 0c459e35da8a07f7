// Rank 0's thread that hears what every rank has ready and tells them what to run. The decisions are
// Negotiation's.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/event.h"
#include "base/log.h"
#include "engine/autotune.h"
#include "engine/metrics.h"
#include "engine/negotiation.h"
#include "engine/operation_numbers.h"
#include "engine/recorder.h"
#include "wire/channel.h"

namespace hvd {

class Coordinator {
 public:
  // ranks[r] leads to rank r, rank 0's own engine included.
  Coordinator(std::vector<wire::Channel> ranks, const hvd_knobs& knobs, Recorder* recorder,
              AbortSignal* abort, const Log& log);
  ~Coordinator();

  // Does what is to be done now, without waiting, unless another thread is at it.
  void serve();
  // Adds what to poll for before the next serve().
  void append_polled(std::vector<pollfd>* polled);

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

  // Rank 0's engine ran one operation. True if the coordinator holds some back and wants a kDone message.
  bool operation_done() {
    executed_.fetch_add(1, std::memory_order_seq_cst);
    return holding_.exchange(false, std::memory_order_seq_cst);
  }

 private:
  void run();
  bool finished();
  bool has_unsent() const;
  void listen(int rank);
  void handle(int rank, wire::Message& message);
  void record_ready(int rank, const wire::Request& request);
  void record_release(const wire::Operation& operation);
  void log_release(const Negotiation::Release& release) const;
  void operation_done_by(int rank);
  bool rank_0_is_busy();
  void release();
  void tune_at_mark();
  void tune_before(const Negotiation::Release& release);
  void change_tuning();
  void send(int rank, const std::vector<uint8_t>& frame);
  void begin_shutdown(int rank);
  void acknowledge(int rank);

  std::mutex mutex_;  // guards everything up to tuning_
  std::vector<wire::Channel> ranks_;
  Recorder* recorder_;
  AbortSignal* abort_;
  const Log log_;
  Event stop_;
  Event unsent_;  // serve() has left something for the thread to send
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
  std::atomic<uint32_t> visits_{0};  // calls of serve()
  std::thread thread_;
};

}  // namespace hvd
