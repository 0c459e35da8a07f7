#include "engine/metrics.h"

namespace hvd {
namespace {

// Every number with the parts of its name, always in the same order.
template <typename Take>
void visit(const Metrics& metrics, const Metrics::Gauges& gauges, const Take& take) {
  auto histogram = [&](const char* name, const Histogram& values, const char* sum, int part = -1) {
    for (size_t i = 0; i < Histogram::kBuckets; ++i)
      take(name, values[i].value(), part, nullptr, static_cast<int>(i));
    take(name, values.sum(), part, sum);
  };
  for (const Kind& kind : kKinds) {
    const auto i = static_cast<size_t>(kind.number);
    take("operations", metrics.operations[i].value(), -1, kind.name);
    take("tensors", metrics.tensors[i].value(), -1, kind.name);
    take("bytes", metrics.bytes[i].value(), -1, kind.name);
  }
  take("blocked_ns", metrics.blocked_ns.value());
  take("cache_hits", metrics.cache_hits.value());
  take("cache_misses", metrics.cache_misses.value());
  take("cache_evictions", metrics.cache_evictions.value());
  take("steps", metrics.steps.value());
  take("stalls", metrics.stalls.value());
  take("failures", metrics.failures.value());
  take("trace_dropped", gauges.trace_dropped);
  take("pending", gauges.pending);
  take("stalled", metrics.stalled.value());
  take("rtt_ns", metrics.rtt_ns.value());
  take("clock_offset_ns", metrics.clock_offset_ns.value());
  take("last_step_ns", metrics.last_step_ns.value());
  for (size_t i = 0; i < Metrics::kSizeClasses; ++i)
    histogram("operation_seconds", metrics.operation_seconds[i], "sum_ns", static_cast<int>(i));
  histogram("negotiation_seconds", metrics.negotiation_seconds, "sum_ns");
  histogram("step_seconds", metrics.step_seconds, "sum_ns");
  histogram("tensors_per_operation", metrics.tensors_per_operation, "sum");
}

}  // namespace

std::string Metrics::names() {
  struct Names {
    std::string* all;
    void operator()(const char* name, uint64_t, int part = -1, const char* rest = nullptr,
                    int bucket = -1) const {
      if (!all->empty()) *all += "\n";
      *all += name;
      if (part >= 0) *all += "." + std::to_string(part);
      if (rest != nullptr) *all += std::string(".") + rest;
      if (bucket >= 0) *all += "." + std::to_string(bucket);
    }
  };
  std::string all;
  visit(Metrics(), {}, Names{&all});
  return all;
}

size_t Metrics::values(const Gauges& gauges, uint64_t* values, size_t capacity) const {
  struct Values {
    uint64_t* values;
    size_t capacity;
    size_t* count;
    void operator()(const char*, uint64_t value, int = -1, const char* = nullptr, int = -1) const {
      if (*count < capacity) values[*count] = value;
      ++*count;
    }
  };
  size_t count = 0;
  visit(*this, gauges, Values{values, capacity, &count});
  return count;
}

}  // namespace hvd
