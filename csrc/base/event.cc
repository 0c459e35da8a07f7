#include "base/event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace hvd {

Event::Event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw std::runtime_error(no_descriptor(errno).text());
}

Event::~Event() { close(fd_); }

void Event::set() noexcept {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(fd_, &one, sizeof one);  // fails only if it is set very often
}

void Event::clear() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = read(fd_, &count, sizeof count);
}

Status no_descriptor(int error) {
  std::string text = "The system gives no descriptor: " + std::string(std::strerror(error)) + ".";
  if (error == EMFILE) text += " Close some or raise the limit (ulimit -n).";
  return Status::unknown(text);
}

}  // namespace hvd
