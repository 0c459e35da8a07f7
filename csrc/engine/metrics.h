// What an engine counts, always: numbers that any thread may read at any time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>

#include "kinds.h"

namespace hvd {

class Counter {
 public:
  // Only one thread at a time may do this: the lock that it holds anyway makes it cheap.
  void bump(uint64_t more = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  // From any thread.
  void add(uint64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  void set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Bucket i counts values from 2^i up to 2^(i+1), the first also those below and the last those above.
class Histogram {
 public:
  static constexpr size_t kBuckets = 32;
  void bump(uint64_t value) { buckets_[bucket(value)].bump(); }
  void bump_ns(uint64_t nanoseconds) {
    bump(nanoseconds / 1000);
    sum_.bump(nanoseconds);
  }
  const Counter& operator[](size_t i) const { return buckets_[i]; }
  uint64_t count() const {
    uint64_t count = 0;
    for (const Counter& bucket : buckets_) count += bucket.value();
    return count;
  }
  uint64_t sum() const { return sum_.value(); }
  void add_to_sum(uint64_t value) { sum_.bump(value); }

 private:
  static size_t bucket(uint64_t value) {
    const size_t log2 = value < 2 ? 0 : 63 - static_cast<size_t>(__builtin_clzll(value));
    return log2 < kBuckets ? log2 : kBuckets - 1;
  }
  Counter buckets_[kBuckets];
  Counter sum_;
};

struct Metrics {
  static constexpr size_t kKinds = std::size(hvd::kKinds);
  static constexpr uint64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
  static constexpr size_t kSizeClasses = std::size(kSizes) + 1;

  // The driver's.
  Counter operations[kKinds], tensors[kKinds], bytes[kKinds];
  Counter cache_evictions, met;                       // met: operations that needed no coordinator
  Histogram operation_seconds[kKinds][kSizeClasses];  // by the operation's bytes
  Histogram negotiation_seconds;                      // from the submission here to the start
  Histogram tensors_per_operation;
  // Under the engine's lock.
  Counter cache_hits, cache_misses;
  // Of any thread.
  Counter blocked_ns, steps, stalls, stalled, failures;
  Counter rtt_ns, clock_offset_ns;  // to rank 0; the second one is signed
  Counter last_step_ns;
  Histogram step_seconds;  // under a lock of its own

  // What is looked at twice a second or so; the ratios in millionths.
  Counter resident_bytes, exposed_ppm, cpu_ppm, bus_rate;

  // What others count, or is only known when somebody asks.
  struct Elsewhere {
    uint64_t pending = 0, trace_dropped = 0, sent = 0, received = 0;
    uint64_t control_sent = 0, control_received = 0;
    const Histogram* queue_seconds = nullptr;  // rank 0: from readiness to release
  };
  // One on each line, in the order of values().
  static std::string names();
  // Writes at most `capacity` and returns how many there are.
  size_t values(const Elsewhere& elsewhere, uint64_t* values, size_t capacity) const;
  // Bytes that each of `size` ranks must move at least for what has run, if all took part.
  uint64_t bus_bytes(int size) const;

  static size_t size_class(uint64_t bytes) {
    size_t i = 0;
    while (i < std::size(kSizes) && bytes > kSizes[i]) ++i;
    return i;
  }
};

// Turns what only grows into rates, over a second at least.
class Rates {
 public:
  struct Totals {
    uint64_t now_ns = 0, blocked_ns = 0, cpu_ns = 0, bus_bytes = 0;
  };
  // From any thread.
  void update(const Totals& totals, Metrics* metrics);

 private:
  std::mutex mutex_;
  Totals before_;
};

}  // namespace hvd
