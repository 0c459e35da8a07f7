// The floating-point mode that the core computes in, whatever the application has set for its thread: results
// must not depend on who drives (torch.set_flush_denormal() on one rank), and a thread starts with the mode
// of the one that created it.
#pragma once

#include <cfenv>
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>

#include "base/not_copied.h"
#endif

namespace hvd {

// Round to nearest even, subnormal numbers are numbers, no traps. For the life of the object; the former mode
// comes back after it. Reading the mode takes a few cycles; it is written only if it is another one.
//
// A compiler may move arithmetic on local variables out of this life. What comes from memory and goes to
// memory, as in a call that is not inlined, stays within.
class FloatMode : NotCopied {
 public:
  FloatMode() : before_(read()), changed_((before_ & ~kFlags) != kDefault) {
    if (changed_) write(kDefault);
    keep_memory_operations();
  }
  ~FloatMode() {
    keep_memory_operations();
    if (changed_) write(before_);
  }

 private:
#if defined(__x86_64__)
  using Register = unsigned;
  static constexpr Register kDefault = 0x1f80;
  static constexpr Register kFlags = 0x3f;  // not a mode: which exceptions have occurred
  static Register read() { return _mm_getcsr(); }
  static void write(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kDefault = 0;
  static constexpr Register kFlags = 0;  // they have a register of their own
  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(Register value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else  // the standard knows of the rounding only
  using Register = int;
  static constexpr Register kDefault = FE_TONEAREST;
  static constexpr Register kFlags = 0;
  static Register read() { return std::fegetround(); }
  static void write(Register value) { std::fesetround(value); }
#endif
  static void keep_memory_operations() { asm volatile("" : : : "memory"); }

  const Register before_;
  const bool changed_;
};

}  // namespace hvd
