// One-way switch shared by the threads of an engine: once raised, every wait ends and every operation fails.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "base/not_copied.h"
#include "base/status.h"

namespace hvd {

class AbortSignal : NotCopied {
 public:
  AbortSignal();
  ~AbortSignal();

  // The first reason stays. Returns whether this call was the first. Safe from any thread.
  bool raise(Status reason);
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  Status reason() const;
  // Whether it is raised by then; waits for that.
  bool raised_within(std::chrono::milliseconds time) const;
  // So long whoever finds a connection for data broken leaves it to the watches to say why: the rank at its
  // other end may have ended because of one that is silent. To be set before anybody waits.
  std::chrono::milliseconds patience() const noexcept { return patience_; }
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  // A descriptor that becomes readable when the signal is raised, for poll(). -1 if none was left.
  int fd() const noexcept { return fd_; }

 private:
  std::atomic<bool> raised_{false};
  int fd_;
  std::chrono::milliseconds patience_{100};
  mutable std::mutex mutex_;
  Status reason_;
};

}  // namespace hvd
