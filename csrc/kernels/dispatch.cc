// Chooses the instruction set once and forwards to its table.
#include <atomic>
#include <cstring>

#include "base/float_mode.h"
#include "kernels/kernels.h"
#include "kernels/table.h"

namespace hvd::kernels {
namespace {

struct Candidate {
  const Table* table;
  bool usable;
};

// Best first. The checks include the operating system's support for the wide registers.
const Candidate* candidates(int* count) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  // VBMI2 is not used: it tells the generations that keep their clock rate with wide vectors.
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2");
  static const Candidate all[] = {{&kAvx512Table, avx512}, {&kAvx2Table, avx2}, {&kGenericTable, true}};
#else
  static const Candidate all[] = {{&kGenericTable, true}};
#endif
  *count = static_cast<int>(sizeof all / sizeof all[0]);
  return all;
}

const Table* find(const char* name) {
  int count;
  const Candidate* all = candidates(&count);
  for (int i = 0; i < count; ++i)
    if (all[i].usable && (!name || !std::strcmp(all[i].table->name, name))) return all[i].table;
  return nullptr;
}

std::atomic<const Table*>& selected() {
  static std::atomic<const Table*> table{find(nullptr)};
  return table;
}

const Table& table() { return *selected().load(std::memory_order_relaxed); }

}  // namespace

void reduce(const Reduction& reduction, void* to, void* copy, const void* const* sources, int n, size_t count,
            const void* ahead) {
  const FloatMode mode;
  if (n > 0 && count > 0) table().reduce(reduction, to, copy, ahead ? ahead : to, sources, n, count);
}

void copy(void* to, const void* from, size_t bytes, const void* ahead) {
  table().copy(to, from, ahead ? ahead : from, bytes);
}

void scale(DataType type, void* to, const void* from, size_t count, double factor) {
  if (type == DataType::kBool) {
    if (to != from && count > 0) std::memmove(to, from, count);
    return;
  }
  Reduction reduction;
  reduction.type = type;
  reduction.factor = factor;
  reduce(reduction, to, nullptr, &from, 1, count);
}

void dots(DataType type, const void* a, const void* b, size_t count, double dots[3]) {
  const FloatMode mode;
  table().dots(type, a, b, count, dots);
}

void combine(DataType type, void* to, const void* a, const void* b, size_t count, double ca, double cb) {
  const FloatMode mode;
  table().combine(type, to, a, b, count, ca, cb);
}

Wide wide_for(DataType type, int n) {
  if (type == DataType::kInt64) return {DataType::kInt64, 2};
  // 2^15 values of 16 bits fit in 32, 2^22 of 32 bits in a double.
  return {size_of(type) < 4 && n <= 1 << 15 ? DataType::kInt32 : DataType::kFloat64, 1};
}

void widen(DataType type, int n, void* to, const void* from, size_t count) {
  table().widen(type, wide_for(type, n).type, n, to, from, count);
}

void divide(DataType type, int n, double factor, void* to, const void* sums, size_t count) {
  const FloatMode mode;
  table().divide(type, wide_for(type, n).type, n, factor, to, sums, count);
}

const char* instruction_set() { return table().name; }

bool use_instruction_set(const char* name) {
  const Table* found = find(name);
  if (found) selected().store(found, std::memory_order_relaxed);
  return found != nullptr;
}

}  // namespace hvd::kernels
