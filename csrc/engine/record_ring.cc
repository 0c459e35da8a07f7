#include "engine/record_ring.h"

#include <algorithm>

namespace hvd {
namespace {

constexpr size_t kLeast = 16;

size_t places(size_t bytes) {
  size_t count = kLeast;
  while (2 * count * sizeof(Record) <= bytes) count *= 2;
  return count;
}

}  // namespace

// The memory is written to here, so that no record has to wait for the kernel to find a page.
RecordRing::RecordRing(size_t bytes) : capacity_(places(bytes)), records_(new Record[capacity_]()) {}

void RecordRing::take(std::vector<Record>* taken) {
  uint64_t place = begin_.load(std::memory_order_relaxed);
  const uint64_t end = end_.load(std::memory_order_acquire);
  for (; place != end; ++place) {
    Record& stored = records_[place & (capacity_ - 1)];
    if (__atomic_load_n(&stored.kind, __ATOMIC_ACQUIRE) == RecordKind::kNone) break;
    taken->push_back(stored);
    __atomic_store_n(&stored.kind, RecordKind::kNone, __ATOMIC_RELAXED);
  }
  begin_.store(place, std::memory_order_release);
}

}  // namespace hvd
