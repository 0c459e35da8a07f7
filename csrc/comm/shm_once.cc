#include "comm/shm_once.h"

namespace hvd {

bool ShmOnce::begin_writing() {
  // A member that came to the previous exchange has read the one before it, whose buffer is now written
  // again.
  if (!reached(seen_all_, number_)) {
    for (size_t member = 0; member < flags_.size(); ++member) {
      if (!wait(line(static_cast<int>(member), number_), number_, waiting_)) return false;
    }
  }
  ++number_;
  return true;
}

bool ShmOnce::await_all() {
  for (size_t member = 0; member < flags_.size(); ++member) {
    if (!await(static_cast<int>(member))) return false;
  }
  seen_all_ = number_;
  places_.look();
  return true;
}

}  // namespace hvd
