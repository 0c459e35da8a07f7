// Records on their way from the threads that make them to the one that writes them. Adding takes no lock: one
// compare-and-swap reserves a place, and the record's kind, stored last with the number of the round through
// the ring, says that it is complete. So who takes them writes nothing to their memory, which would have to
// travel between processors twice more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/not_copied.h"
#include "engine/record.h"

namespace hvd {

class RecordRing : NotCopied {
 public:
  // For as many records as fit into `bytes`, rounded down to a power of two, and a few at least.
  explicit RecordRing(size_t bytes);

  enum class Added {
    kYes,
    kHalf,  // yes, and half of the places were used since this was said last: they should be taken soon
    kFull,  // no
  };
  // For any thread.
  Added add(const Record& record) {
    uint64_t place = end_.load(std::memory_order_relaxed);
    do {
      if (place - begin_.load(std::memory_order_acquire) >= capacity_) return Added::kFull;
    } while (!end_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed));
    // For writing: the next compare-and-swap, of whatever lock, would wait until a line that is elsewhere is
    // here.
    __builtin_prefetch(&records_[(place + kAhead) & (capacity_ - 1)], 1);
    Record& stored = records_[place & (capacity_ - 1)];
    stored.time = record.time;
    stored.operation = record.operation;
    stored.set = record.set;
    stored.generation = record.generation;
    stored.name = record.name;
    stored.extra = record.extra;
    stored.bytes = record.bytes;
    stored.argument = record.argument;
    __atomic_store_n(&stored.kind, marked(record.kind, place), __ATOMIC_RELEASE);
    return (place & (capacity_ / 2 - 1)) == 0 && place != 0 ? Added::kHalf : Added::kYes;
  }

  // visit(record) for each complete one, in the order in which they were added; one that is not complete
  // keeps those after it back. For one thread at a time.
  template <class Visit>
  void take(Visit visit) {
    uint64_t place = begin_.load(std::memory_order_relaxed);
    const uint64_t end = end_.load(std::memory_order_acquire);
    for (; place != end; ++place) {
      // They are in another processor's cache, and one after the other would take ten times as long.
      __builtin_prefetch(&records_[(place + kAhead) & (capacity_ - 1)]);
      Record& stored = records_[place & (capacity_ - 1)];
      const RecordKind kind = __atomic_load_n(&stored.kind, __ATOMIC_ACQUIRE);
      const RecordKind plain = static_cast<RecordKind>(static_cast<uint16_t>(kind) & kKind);
      if (plain == RecordKind::kNone || kind != marked(plain, place)) break;
      Record taken = stored;
      taken.kind = plain;
      visit(taken);
    }
    begin_.store(place, std::memory_order_release);
  }
  // Is there any, complete or not?
  bool empty() const { return begin_.load() == end_.load(); }

 private:
  static constexpr size_t kLine = 64;
  static constexpr uint64_t kAhead = 24;
  static constexpr uint16_t kKind = 0xFF;
  RecordKind marked(RecordKind kind, uint64_t place) const {
    return static_cast<RecordKind>(static_cast<uint16_t>(kind) |
                                   static_cast<uint16_t>((place / capacity_) << 8));
  }
  const size_t capacity_;
  const std::unique_ptr<Record[]> records_;
  alignas(kLine) std::atomic<uint64_t> end_{0};    // counts all that were ever added
  alignas(kLine) std::atomic<uint64_t> begin_{0};  // counts all that were ever taken
};

}  // namespace hvd
