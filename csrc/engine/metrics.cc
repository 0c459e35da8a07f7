#include "engine/metrics.h"

#include <algorithm>
#include <utility>

namespace hvd {
namespace {

// Every number with the parts of its name, always in the same order.
template <typename Take>
void visit(const Metrics& metrics, const Metrics::Elsewhere& elsewhere, const Take& take) {
  // The number of all comes first: most histograms of kinds and sizes stay empty. Each bucket counts all that
  // is smaller, too, as Prometheus has them.
  auto histogram = [&](const char* name, const Histogram& values, const char* sum, const char* kind = nullptr,
                       int size = -1) {
    take(name, values.count(), kind, size, "count");
    take(name, values.sum(), kind, size, sum);
    uint64_t so_far = 0;
    for (size_t i = 0; i < Histogram::kBuckets; ++i)
      take(name, so_far += values[i].value(), kind, size, nullptr, static_cast<int>(i));
  };
  for (const Kind& kind : kKinds) {
    const auto i = static_cast<size_t>(kind.number);
    take("operations", metrics.operations[i].value(), kind.name);
    take("tensors", metrics.tensors[i].value(), kind.name);
    take("bytes", metrics.bytes[i].value(), kind.name);
  }
  take("blocked_ns", metrics.blocked_ns.value());
  take("cache_hits", metrics.cache_hits.value());
  take("cache_misses", metrics.cache_misses.value());
  take("cache_evictions", metrics.cache_evictions.value());
  take("operations_without_coordinator", metrics.met.value());
  take("steps", metrics.steps.value());
  take("stalls", metrics.stalls.value());
  take("failures", metrics.failures.value());
  take("trace_dropped", elsewhere.trace_dropped);
  take("network_bytes", elsewhere.sent, "sent");
  take("network_bytes", elsewhere.received, "received");
  take("control_messages", elsewhere.control_sent, "sent");
  take("control_messages", elsewhere.control_received, "received");
  take("pending", elsewhere.pending);
  take("stalled", metrics.stalled.value());
  take("rtt_ns", metrics.rtt_ns.value());
  take("clock_offset_ns", metrics.clock_offset_ns.value());
  take("last_step_ns", metrics.last_step_ns.value());
  take("resident_bytes", metrics.resident_bytes.value());
  take("exposed_ppm", metrics.exposed_ppm.value());
  take("cpu_ppm", metrics.cpu_ppm.value());
  take("bus_rate", metrics.bus_rate.value());
  for (const Kind& kind : kKinds)
    for (size_t i = 0; i < Metrics::kSizeClasses; ++i)
      histogram("operation_seconds", metrics.operation_seconds[static_cast<size_t>(kind.number)][i], "sum_ns",
                kind.name, static_cast<int>(i));
  histogram("negotiation_seconds", metrics.negotiation_seconds, "sum_ns");
  static const Histogram kNone;
  histogram("queue_seconds", elsewhere.queue_seconds == nullptr ? kNone : *elsewhere.queue_seconds, "sum_ns");
  histogram("step_seconds", metrics.step_seconds, "sum_ns");
  histogram("tensors_per_operation", metrics.tensors_per_operation, "sum");
}

}  // namespace

std::string Metrics::names() {
  struct Names {
    std::string* all;
    void operator()(const char* name, uint64_t, const char* part = nullptr, int size = -1,
                    const char* rest = nullptr, int bucket = -1) const {
      if (!all->empty()) *all += "\n";
      *all += name;
      if (part != nullptr) *all += std::string(".") + part;
      if (size >= 0) *all += "." + std::to_string(size);
      if (rest != nullptr) *all += std::string(".") + rest;
      if (bucket >= 0) *all += "." + std::to_string(bucket);
    }
  };
  std::string all;
  static const Metrics kEmpty;  // too large for a stack
  visit(kEmpty, {}, Names{&all});
  return all;
}

size_t Metrics::values(const Elsewhere& elsewhere, uint64_t* values, size_t capacity) const {
  struct Values {
    uint64_t* values;
    size_t capacity;
    size_t* count;
    void operator()(const char*, uint64_t value, const char* = nullptr, int = -1, const char* = nullptr,
                    int = -1) const {
      if (*count < capacity) values[*count] = value;
      ++*count;
    }
  };
  size_t count = 0;
  visit(*this, elsewhere, Values{values, capacity, &count});
  return count;
}

uint64_t Metrics::bus_bytes(int size) const {
  const auto n = static_cast<double>(size);
  auto counted = [this](int32_t kind) {
    return static_cast<double>(bytes[static_cast<size_t>(kind)].value());
  };
  const double all = counted(HVD_ALLREDUCE) * 2 * (n - 1) / n +
                     counted(HVD_ALLGATHER) * (n - 1) +  // it counts what one rank gives
                     (counted(HVD_ALLTOALL) + counted(HVD_REDUCESCATTER)) * (n - 1) / n +
                     (size > 1 ? counted(HVD_BROADCAST) : 0.0);
  return static_cast<uint64_t>(all);
}

void Rates::update(const Totals& totals, Metrics* metrics) {
  constexpr uint64_t kLeast = 900'000'000;  // those who ask do so every half second or every second
  std::lock_guard<std::mutex> lock(mutex_);
  if (totals.now_ns < before_.now_ns + kLeast) return;
  const Totals before = std::exchange(before_, totals);
  if (before.now_ns == 0) return;
  const auto seconds = static_cast<double>(totals.now_ns - before.now_ns) / 1e9;
  auto rate = [seconds](uint64_t now, uint64_t then) { return static_cast<double>(now - then) / seconds; };
  constexpr double kNsToPpm = 1e-3;
  const double exposed = rate(totals.blocked_ns, before.blocked_ns) * kNsToPpm;
  metrics->exposed_ppm.set(static_cast<uint64_t>(std::min(exposed, 1e6)));
  metrics->cpu_ppm.set(static_cast<uint64_t>(rate(totals.cpu_ns, before.cpu_ns) * kNsToPpm));
  metrics->bus_rate.set(static_cast<uint64_t>(rate(totals.bus_bytes, before.bus_bytes)));
}

}  // namespace hvd
