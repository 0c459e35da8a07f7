// copy_streaming() for the instruction set of the including file; see elements.h for how that works.
#pragma once

#include "kernels/elements.h"

namespace hvd::kernels {
namespace {

constexpr size_t kCacheLine = 64;

// How many bytes after `p` a cache line begins. Non-temporal stores are only fast if they fill whole lines.
HVD_INLINE size_t bytes_to_line(const void* p) { return -reinterpret_cast<uintptr_t>(p) % kCacheLine; }

void copy_streaming_bytes(void* to, const void* from, size_t bytes) {
  using V = Vector<uint8_t>;
  auto* target = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  const size_t head = bytes_to_line(to) < bytes ? bytes_to_line(to) : bytes;
  __builtin_memcpy(target, source, head);
  size_t i = head;
  for (; i + 4 * sizeof(V) <= bytes; i += 4 * sizeof(V)) {
    V v[4];
#pragma GCC unroll 4
    for (size_t u = 0; u < 4; ++u) v[u] = load_raw<V>(source + i + u * sizeof(V));
#pragma GCC unroll 4
    for (size_t u = 0; u < 4; ++u) stream_store(target + i + u * sizeof(V), v[u]);
  }
  __builtin_memcpy(target + i, source + i, bytes - i);
  stream_fence();
}

}  // namespace
}  // namespace hvd::kernels
