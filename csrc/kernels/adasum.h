// dots() and combine() for the instruction set of the including file; see elements.h for how that works.
#pragma once

#include "base/types.h"
#include "kernels/elements.h"
#include "kernels/reduce.h"

namespace hvd::kernels {
namespace {

// Element i is always added to sum i % kDotSums, whatever the vector width, so that the sums have the same
// bits.
constexpr size_t kDotSums = 8;
constexpr size_t kDotVectors = kDotSums * sizeof(double) / kVectorBytes;

HVD_INLINE Vector<double> load_doubles(const double* from) { return load_raw<Vector<double>>(from); }
HVD_INLINE Vector<double> load_doubles(const float* from) {
  typedef float Narrow __attribute__((vector_size(kVectorBytes / 2)));
  return __builtin_convertvector(load_raw<Narrow>(from), Vector<double>);
}

template <class T>
struct Dots {
  Vector<double> ab[kDotVectors] = {}, aa[kDotVectors] = {}, bb[kDotVectors] = {};

  HVD_INLINE void add_each(const T* a, const T* b) {
#pragma GCC unroll 4
    for (size_t p = 0; p < kDotVectors; ++p) {
      const auto x = load_doubles(a + p * (kDotSums / kDotVectors));
      const auto y = load_doubles(b + p * (kDotSums / kDotVectors));
      ab[p] += x * y;
      aa[p] += x * x;
      bb[p] += y * y;
    }
  }

  // Only the last call may have a `count` that is no multiple of kDotSums.
  HVD_INLINE void add(const T* a, const T* b, size_t count) {
    size_t i = 0;
    for (; i + kDotSums <= count; i += kDotSums) add_each(a + i, b + i);
    if (i == count) return;
    T last_a[kDotSums] = {}, last_b[kDotSums] = {};
    __builtin_memcpy(last_a, a + i, (count - i) * sizeof(T));
    __builtin_memcpy(last_b, b + i, (count - i) * sizeof(T));
    add_each(last_a, last_b);
  }

  static double total(const Vector<double>* vectors) {
    double sum[kDotSums];
    __builtin_memcpy(sum, vectors, sizeof sum);
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  }
  void add_to(double dots[3]) const {
    dots[0] += total(ab);
    dots[1] += total(aa);
    dots[2] += total(bb);
  }
};

template <class T>
void dots_plain(const void* a, const void* b, size_t count, double dots[3]) {
  Dots<T> sums;
  sums.add(static_cast<const T*>(a), static_cast<const T*>(b), count);
  sums.add_to(dots);
}

// 16-bit types are widened chunk by chunk.
template <class E>
void dots_widened(const void* a, const void* b, size_t count, double dots[3]) {
  constexpr size_t kChunk = 1024;
  alignas(kCacheLine) float wide_a[kChunk], wide_b[kChunk];
  using Widen = Pass<E, E, Plain<float>, Sum>;
  Dots<float> sums;
  for (size_t begin = 0; begin < count; begin += kChunk) {
    const size_t chunk = count - begin < kChunk ? count - begin : kChunk;
    Widen{static_cast<const uint16_t*>(a) + begin, nullptr, 0, 0, wide_a, nullptr, nullptr, false, 1}.run(
        chunk);
    Widen{static_cast<const uint16_t*>(b) + begin, nullptr, 0, 0, wide_b, nullptr, nullptr, false, 1}.run(
        chunk);
    sums.add(wide_a, wide_b, chunk);
  }
  sums.add_to(dots);
}

void dots_any(DataType type, const void* a, const void* b, size_t count, double dots[3]) {
  switch (type) {
    case DataType::kFloat16:
      return dots_widened<Float16>(a, b, count, dots);
    case DataType::kBfloat16:
      return dots_widened<Bfloat16>(a, b, count, dots);
    case DataType::kFloat32:
      return dots_plain<float>(a, b, count, dots);
    case DataType::kFloat64:
      return dots_plain<double>(a, b, count, dots);
    default:
      return;
  }
}

template <class E>
void combine_as(void* to, const void* a, const void* b, size_t count, double ca, double cb) {
  using Stored = typename E::Stored;
  const auto fa = to_factor<E>(ca), fb = to_factor<E>(cb);
  const auto* x = static_cast<const Stored*>(a);
  const auto* y = static_cast<const Stored*>(b);
  auto* z = static_cast<Stored*>(to);
  size_t i = 0;
  for (; i + E::kWidth <= count; i += E::kWidth)
    store_raw(z + i, E::pack(E::load(x + i) * fa + E::load(y + i) * fb));
  if (i == count) return;
  Stored last_x[E::kWidth] = {}, last_y[E::kWidth] = {};
  __builtin_memcpy(last_x, x + i, (count - i) * sizeof(Stored));
  __builtin_memcpy(last_y, y + i, (count - i) * sizeof(Stored));
  const auto last = E::pack(E::load(last_x) * fa + E::load(last_y) * fb);
  __builtin_memcpy(z + i, &last, (count - i) * sizeof(Stored));
}

void combine_any(DataType type, void* to, const void* a, const void* b, size_t count, double ca, double cb) {
  switch (type) {
    case DataType::kFloat16:
      return combine_as<Float16>(to, a, b, count, ca, cb);
    case DataType::kBfloat16:
      return combine_as<Bfloat16>(to, a, b, count, ca, cb);
    case DataType::kFloat32:
      return combine_as<Plain<float>>(to, a, b, count, ca, cb);
    case DataType::kFloat64:
      return combine_as<Plain<double>>(to, a, b, count, ca, cb);
    default:
      return;
  }
}

}  // namespace
}  // namespace hvd::kernels
