// How long a program has nothing to do because of operations that call back, for which no thread waits: from
// the last submission of a step to the moment when none is pending. Behind what it submits before that, the
// step goes on. No locks: who asks has one.
#pragma once

#include <cstdint>
#include <utility>

namespace hvd {

class CalledBack {
 public:
  void submitted(uint64_t now) {
    ++pending_;
    last_ = now;
  }
  // One of those. Returns what counts now: where nothing tells of steps, each row of operations does.
  uint64_t ended(uint64_t now) {
    if (--pending_ != 0) return 0;
    blocked_ = now - last_;
    return steps_ ? 0 : std::exchange(blocked_, 0);
  }
  // A step of the training. Returns what counts now.
  uint64_t step_ended() {
    steps_ = true;
    return std::exchange(blocked_, 0);
  }

 private:
  uint64_t pending_ = 0, last_ = 0;
  uint64_t blocked_ = 0;  // by what has ended last in this step
  bool steps_ = false;
};

}  // namespace hvd
