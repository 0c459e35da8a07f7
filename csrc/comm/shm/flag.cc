#include "comm/shm/flag.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/processors.h"

namespace hvd {

namespace {

// How long to spin before sleeping. Spinning steals the processor from others who have something to do;
// sleeping costs a wake-up. So each thread spins for longer after it was worth it, and less after it was not.
constexpr int kLeastPauses = 100, kMostPauses = 3200;
thread_local int pauses = kMostPauses;
constexpr int kCrowdedPauses = 40;            // where ranks share processors; then they yield
constexpr timespec kSlice = {0, 20'000'000};  // how late a raised abort signal may be noticed

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void yield() { sched_yield(); }

// The mapping is shared between processes, so these are not the private kind.
void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
void futex_sleep(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &kSlice, nullptr, 0);
}

}  // namespace

void post(Flag& flag, uint32_t value) {
  // Sequential consistency orders this store before the look at `sleepers`, and a sleeper's increment before
  // its look at `value`: one of the two always sees the other.
  flag.value.store(value, std::memory_order_seq_cst);
  if (flag.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake(flag.value);
}

bool wait_slowly(Flag& flag, uint32_t target, const Waiting& how) {
  auto arrives_within = [&](int looks, void (*between)()) {
    for (int i = 0; i < looks; ++i) {
      between();
      if (reached(flag.value.load(std::memory_order_acquire), target)) return true;
    }
    return false;
  };
  if (how.crowded) {
    if (arrives_within(kCrowdedPauses, cpu_pause) || arrives_within(kYields, yield)) return true;
  } else {
    const bool arrived = arrives_within(pauses, cpu_pause);
    pauses = std::clamp(arrived ? 2 * pauses : pauses / 2, kLeastPauses, kMostPauses);
    if (arrived) return true;
  }
  flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
  bool arrived = false;
  while (!how.abort.raised()) {
    uint32_t seen = flag.value.load(std::memory_order_seq_cst);
    arrived = reached(seen, target);
    if (arrived) break;
    futex_sleep(flag.value, seen);
  }
  flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return arrived;
}

}  // namespace hvd
