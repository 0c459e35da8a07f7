// A counter in shared memory that one rank raises and others wait for, across processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/abort_signal.h"

namespace hvd {

// Alone on two cache lines, because processors fetch lines in pairs. The payload travels with the counter:
// what was written to it before post() is there after wait(). Zero bytes are a valid flag.
struct alignas(128) Flag {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
  std::byte payload[120];
};
static_assert(sizeof(Flag) == 128 && std::atomic<uint32_t>::is_always_lock_free);

// Counters only grow and may wrap around.
inline bool reached(uint32_t value, uint32_t target) { return static_cast<int32_t>(value - target) >= 0; }

// Only the rank that owns the flag posts. Makes no system call unless somebody sleeps.
void post(Flag& flag, uint32_t value);

// How ranks wait for each other.
struct Waiting {
  const AbortSignal& abort;  // ends every wait
  bool crowded;              // ranks share processors: a waiting rank yields its core
};

bool wait_slowly(Flag& flag, uint32_t target, const Waiting& how);

// Until the flag reaches `target`: looks for a moment, then sleeps. False: the abort signal was raised.
inline bool wait(Flag& flag, uint32_t target, const Waiting& how) {
  return reached(flag.value.load(std::memory_order_acquire), target) || wait_slowly(flag, target, how);
}

}  // namespace hvd
