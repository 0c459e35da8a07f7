// Floating-point modes that an application may have set for its threads.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace float_modes {

#if defined(__x86_64__)
inline uint64_t get() { return _mm_getcsr() & ~0x3fu; }  // without what has happened so far
inline void set(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
constexpr uint64_t kNormal = 0x1f80, kTrapping = 0;                           // every exception is a signal
constexpr uint64_t kOdd[] = {kNormal | 0x8040, kNormal | 0x4000, kTrapping};  // flush to zero, round up
#elif defined(__aarch64__)
inline uint64_t get() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void set(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
constexpr uint64_t kNormal = 0, kTrapping = 0x1f00;  // every exception is a signal, where that exists
constexpr uint64_t kOdd[] = {uint64_t{1} << 24, uint64_t{1} << 22};  // flush to zero, round up
#endif

// The calling thread, and those that it starts, have this mode for a while.
class Odd {
 public:
  explicit Odd(uint64_t mode) : before_(get()) { set(mode); }
  ~Odd() { set(before_); }

 private:
  uint64_t before_;
};

}  // namespace float_modes
