#include "base/abort_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace hvd {

AbortSignal::AbortSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

AbortSignal::~AbortSignal() {
  if (fd_ >= 0) close(fd_);
}

bool AbortSignal::raise(Status reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    reason_ = std::move(reason);
    raised_.store(true, std::memory_order_release);
  }
  uint64_t one = 1;
  // A full counter or a failed eventfd leaves the flag, which every wait also looks at.
  [[maybe_unused]] ssize_t written = write(fd_, &one, sizeof one);
  return true;
}

bool AbortSignal::raised_within(std::chrono::milliseconds time) const {
  pollfd signal{fd_, POLLIN, 0};
  const auto end = std::chrono::steady_clock::now() + time;
  for (auto left = time; !raised() && left.count() > 0;) {
    poll(&signal, 1, static_cast<int>(left.count()));  // a signal to the process ends it early
    left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  }
  return raised();
}

Status AbortSignal::reason() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

}  // namespace hvd
