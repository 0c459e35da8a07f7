// Where control connections meet: the coordinator, or a rank with others below it. A thread of its own
// listens to them, unless one that waits for an operation does.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/event.h"
#include "wire/channel.h"

namespace hvd {

class Hub {
 public:
  virtual ~Hub() = default;

  // Does what is to be done now, without waiting, unless another thread is at it.
  void serve();
  // An operation of this rank was submitted, or no longer is, that nobody waits for at once.
  void leave_alone(uint32_t more) { left_alone_.fetch_add(more, std::memory_order_relaxed); }
  // Adds what to poll for before the next serve(); false if that is not to wait. end_sleep() follows in any
  // case, with what was added. Until then the hub's own thread leaves what comes to the caller.
  bool begin_sleep(std::vector<pollfd>* polled) {
    visitors_.fetch_add(1);
    return listen_asleep(polled);
  }
  void end_sleep(const pollfd* polled) {
    wake_up(polled);
    visitors_.fetch_sub(1);
  }

  // Frames since the start, those of this rank's own engine (connection 0) not counted; for any thread.
  uint64_t frames_sent() const { return frames_sent_.load(std::memory_order_relaxed); }
  uint64_t frames_received() const { return frames_received_.load(std::memory_order_relaxed); }

 protected:
  using Clock = std::chrono::steady_clock;

  Hub(std::vector<wire::Channel> channels, AbortSignal* abort);
  // By the constructor and the destructor of what is derived.
  void start(const char* name);
  void stop();

  // All of these are called under the lock.
  virtual void received(size_t channel, const uint8_t* data, size_t size) = 0;
  // Everything that had arrived was received.
  virtual void act() = 0;
  // When act() is due although nothing arrives.
  virtual Clock::time_point due() { return Clock::time_point::max(); }
  // The other end is gone. Why is the watch's to find out.
  virtual void lost(size_t) {}
  virtual int rank_at(size_t channel) const = 0;  // at the other end
  virtual bool closed() const = 0;                // nothing more will come

  void send(size_t channel, const std::vector<uint8_t>& frame);
  // What has been sent outside of received() and act().
  void sent_by_visitor() {
    if (has_unsent()) unsent_.set();
  }

  std::mutex mutex_;
  AbortSignal* const abort_;

 private:
  void run();
  void look();
  void listen(size_t channel);
  bool has_unsent() const;
  bool finished();
  bool wait(std::vector<pollfd>* polled, bool relieved, timespec moment);
  bool listen_asleep(std::vector<pollfd>* polled);
  void wake_up(const pollfd* polled);
  bool overdue();

  std::vector<wire::Channel> channels_;
  Event stop_;
  Event unsent_;                     // serve() has left something for the thread to send
  bool sent_ = false;                // anything, since run() looked last
  std::atomic<int> visitors_{0};     // that sleep
  std::atomic<uint32_t> visits_{0};  // calls of serve()
  std::atomic<uint32_t> left_alone_{0};
  std::atomic<uint64_t> frames_sent_{0}, frames_received_{0};
  std::thread thread_;
};

}  // namespace hvd
