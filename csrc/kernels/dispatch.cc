// Chooses the instruction set once and forwards to its table.
#include <atomic>
#include <cstring>

#include "base/float_mode.h"
#include "kernels/kernels.h"
#include "kernels/table.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hvd::kernels {
namespace {

#if defined(__x86_64__)
struct WideVectors {
  bool avx2 = false, avx512 = false;
};

// Those that the processor has and the operating system keeps for us. Not by __builtin_cpu_supports(), as it
// needs a part of the compiler's library that some have left out.
WideVectors wide_vectors() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0 || (c & bit_F16C) == 0) return {};
  unsigned kept, upper;
  asm volatile("xgetbv" : "=a"(kept), "=d"(upper) : "c"(0));
  constexpr unsigned kYmm = 0x06, kZmm = 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  WideVectors wide;
  wide.avx2 = (kept & kYmm) == kYmm && (b & bit_AVX2) != 0;
  constexpr unsigned kWidest = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  // VBMI2 is not used: it tells the generations that keep their clock rate with wide vectors.
  wide.avx512 = wide.avx2 && (kept & kZmm) == kZmm && (b & kWidest) == kWidest && (c & bit_AVX512VBMI2) != 0;
  return wide;
}
#endif

struct Candidate {
  const Table* table;
  bool usable;
};

// Best first.
const Candidate* candidates(int* count) {
#if defined(__x86_64__)
  static const WideVectors wide = wide_vectors();
  static const Candidate all[] = {
      {&kAvx512Table, wide.avx512}, {&kAvx2Table, wide.avx2}, {&kGenericTable, true}};
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
