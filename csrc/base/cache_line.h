// Cache lines that processors pass to each other.
#pragma once

#include <cstddef>

namespace hvd {

constexpr size_t kCacheLine = 64;

// Fetches a line that was written elsewhere and will be written here. Asking for both at once takes one
// exchange between the processors where reading it first takes two, and many can be under way.
__attribute__((always_inline)) inline void own_line(const void* line) {
#if defined(__x86_64__)
  asm volatile(
      "prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // the builtin may fetch for reading only
#else
  __builtin_prefetch(line, 1);
#endif
}

// Has a line come that will be read soon. Any address will do.
__attribute__((always_inline)) inline void expect_line(const void* line) { __builtin_prefetch(line, 0, 2); }

}  // namespace hvd
