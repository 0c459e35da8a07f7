#include "base/abort_signal.h"

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

Status AbortSignal::reason() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reason_;
}

}  // namespace hvd
