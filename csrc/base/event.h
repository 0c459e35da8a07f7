// A switch that poll() can wait for.
#pragma once

#include "base/not_copied.h"
#include "base/status.h"

namespace hvd {

class Event : NotCopied {
 public:
  // Throws std::runtime_error if no descriptor is left: a wait for it would never end.
  Event();
  ~Event();

  // Readable while the event is set.
  int fd() const noexcept { return fd_; }
  void set() noexcept;
  void clear() noexcept;

 private:
  const int fd_;
};

// What to say if the system gave no descriptor, for the reason `error` (errno).
Status no_descriptor(int error);

}  // namespace hvd
