#include "wire/ring.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace hvd::wire {

// A writer stores `written` and then looks for sleepers; a sleeper counts itself and then looks at `written`.
// One of them sees the other, as all four are sequentially consistent. The same holds for `read` and
// `wanting`.

bool Ring::empty() const {
  return written.load(std::memory_order_seq_cst) == read.load(std::memory_order_relaxed);
}

size_t Ring::put(const uint8_t* data, size_t size) {
  const uint64_t begin = written.load(std::memory_order_relaxed);
  const uint64_t used = begin - read.load(std::memory_order_seq_cst);
  if (used >= kBytes) return 0;
  const size_t count = std::min(size, kBytes - static_cast<size_t>(used));
  const size_t at = begin % kBytes, first = std::min(count, kBytes - at);
  std::memcpy(bytes + at, data, first);
  std::memcpy(bytes, data + first, count - first);
  written.store(begin + count, std::memory_order_seq_cst);
  return count;
}

size_t Ring::take(uint8_t* data, size_t room) {
  const uint64_t begin = read.load(std::memory_order_relaxed);
  const uint64_t there = written.load(std::memory_order_acquire) - begin;
  // Never more than fits, whatever the other process has done to the numbers.
  const size_t count = static_cast<size_t>(std::min<uint64_t>({there, room, kBytes}));
  if (count == 0) return 0;
  const size_t at = begin % kBytes, first = std::min(count, kBytes - at);
  std::memcpy(data, bytes + at, first);
  std::memcpy(data + first, bytes, count - first);
  read.store(begin + count, std::memory_order_seq_cst);
  return count;
}

std::shared_ptr<ControlRings> make_control_rings(int ranks) {
  constexpr std::align_val_t kAlignment{alignof(ControlRings)};
  void* memory = ::operator new(ControlRings::bytes(ranks), kAlignment);
  std::memset(memory, 0, ControlRings::bytes(ranks));
  return {static_cast<ControlRings*>(memory), [](void* address) { ::operator delete(address, kAlignment); }};
}

}  // namespace hvd::wire
