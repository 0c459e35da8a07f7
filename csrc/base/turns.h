// How soon a thread gets a processor when it wakes up.
#pragma once

#include <cstdint>

namespace hvd {

// The kernel's struct sched_attr in its first version, as not every C library has one.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // of an ordinary thread: the length of its turns in nanoseconds, since Linux 6.12
  uint64_t deadline, period;
};

// Asks for short turns for this thread. Where all processors compute, a thread that wakes up takes the place
// of another at once only if its turns are shorter; otherwise it may have to wait for the next tick,
// milliseconds that all ranks wait for. Its share of the time stays the same.
void take_short_turns();

// The contrary, for a thread whose work can wait: it takes nobody's place when it wakes up, and where all
// processors are busy it gets a quarter of another thread's time.
void stand_back();

}  // namespace hvd
