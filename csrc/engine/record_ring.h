// Records on their way from the threads that make them to the one that writes them. Adding takes no lock: one
// compare-and-swap reserves a place, and the record's kind, stored last, says that it is complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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
    Record& stored = records_[place & (capacity_ - 1)];
    stored.time = record.time;
    stored.operation = record.operation;
    stored.set = record.set;
    stored.generation = record.generation;
    stored.name = record.name;
    stored.extra = record.extra;
    stored.bytes = record.bytes;
    stored.argument = record.argument;
    __atomic_store_n(&stored.kind, record.kind, __ATOMIC_RELEASE);
    return (place & (capacity_ / 2 - 1)) == 0 && place != 0 ? Added::kHalf : Added::kYes;
  }

  // Moves the complete ones to the end of `taken`, in the order in which they were added; one that is not
  // complete keeps those after it back. For one thread at a time.
  void take(std::vector<Record>* taken);
  // Is there any, complete or not?
  bool empty() const { return begin_.load() == end_.load(); }

 private:
  static constexpr size_t kLine = 64;
  const size_t capacity_;
  const std::unique_ptr<Record[]> records_;
  alignas(kLine) std::atomic<uint64_t> end_{0};    // counts all that were ever added
  alignas(kLine) std::atomic<uint64_t> begin_{0};  // counts all that were ever taken
};

}  // namespace hvd
