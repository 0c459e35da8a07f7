// How each element type is loaded into vectors, computed and stored again. Included only by generic.cc,
// avx2.cc and avx512.cc, after they have included vectors.h and defined the conversions between Floats, Words
// and Halves; everything is in an unnamed namespace because each of those files compiles it for another
// instruction set. No standard library here: its inline functions would be emitted for that instruction set
// and shared with all callers.
#pragma once

#include <cstddef>
#include <cstdint>

#define HVD_INLINE __attribute__((always_inline)) inline
#define HVD_NOINLINE __attribute__((noinline))  // keeps one copy of a large body

namespace hvd::kernels {
namespace {

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class V>
HVD_INLINE V load_raw(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
HVD_INLINE void store_raw(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

// An element type has: Stored, Vector (what is computed with), Scalar (an element of it), kWidth, and
//   load(p) -> Vector of kWidth elements, pack(Vector) -> what is stored for them.

// Types computed as they are stored. Sums and products of integers use the unsigned type: it wraps.
template <class T>
struct Plain {
  using Stored = T;
  using Scalar = T;
  using Vector = kernels::Vector<T>;
  using Accumulator = Plain<T>;
  static constexpr size_t kWidth = kVectorBytes / sizeof(T);
  static constexpr bool kFloating = static_cast<T>(0.5) != 0;
  static HVD_INLINE Vector load(const Stored* from) { return load_raw<Vector>(from); }
  static HVD_INLINE Vector pack(Vector v) { return v; }
};

// Types of 16 bits, computed as float.
struct Half {
  using Stored = uint16_t;
  using Scalar = float;
  using Vector = Floats;
  using Accumulator = Plain<float>;
  static constexpr size_t kWidth = kVectorBytes / sizeof(float);
  static constexpr bool kFloating = true;
};

struct Float16 : Half {
  static HVD_INLINE Vector load(const Stored* from) { return float16_to_float(from); }
  static HVD_INLINE Halves pack(Vector v) { return float_to_float16(v); }
};

struct Bfloat16 : Half {
  static HVD_INLINE Vector load(const Stored* from) { return (Floats)(widen(from) << 16); }
  // Rounds to nearest even. NaNs need no care: those that come from bfloat16 (or from the processor) have a
  // zero lower half, which keeps the carry from running through the rest. A NaN factor must be like that, see
  // to_factor().
  static HVD_INLINE Halves pack(Vector v) {
    const Words bits = (Words)v;
    return narrow((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// Any non-zero byte counts as true; results are 0 or 1.
struct Bool {
  using Stored = uint8_t;
  using Scalar = uint8_t;
  using Vector = kernels::Vector<uint8_t>;
  using Accumulator = Plain<uint8_t>;
  static constexpr size_t kWidth = kVectorBytes;
  static constexpr bool kFloating = false;
  static HVD_INLINE Vector load(const Stored* from) { return (Vector)(load_raw<Vector>(from) != 0) & 1; }
  static HVD_INLINE Vector pack(Vector v) { return v; }
};

// A factor in the precision of the computation. NaN loses its payload. Integers are not multiplied in
// vectors.
template <class E>
HVD_INLINE typename E::Scalar to_factor(double factor) {
  if constexpr (!E::kFloating)
    return 1;
  else
    return static_cast<typename E::Scalar>(factor == factor ? factor : __builtin_nan(""));
}

struct Sum {
  static constexpr bool kHot = true;
  template <class V>
  static HVD_INLINE V apply(V a, V b) {
    return a + b;
  }
};
struct Product {
  static constexpr bool kHot = false;
  template <class V>
  static HVD_INLINE V apply(V a, V b) {
    return a * b;
  }
};
struct Or {
  static constexpr bool kHot = false;
  template <class V>
  static HVD_INLINE V apply(V a, V b) {
    return a | b;
  }
};
struct And {
  static constexpr bool kHot = false;
  template <class V>
  static HVD_INLINE V apply(V a, V b) {
    return a & b;
  }
};

// Minimum and maximum do not depend on the order of floating operands: NaN wins (and becomes quiet), and -0 <
// +0. Equal operands differ at most in the sign of zero, so or-ing (and-ing) their bits picks the right one.
template <bool kIsMin>
struct Extreme {
  static constexpr bool kHot = false;
  template <class V>
  static HVD_INLINE V apply(V a, V b) {
    using Bits = decltype(a < b);
    const V ordered = kIsMin ? (a < b ? a : b) : (a > b ? a : b);
    if constexpr (static_cast<decltype(a[0] + a[0])>(0.5) == 0) {
      return ordered;
    } else {
      const V same = kIsMin ? (V)((Bits)a | (Bits)b) : (V)((Bits)a & (Bits)b);
      const V number = a == b ? same : ordered;
      return ((a == a) & (b == b)) ? number : a + b;
    }
  }
};
using Min = Extreme<true>;
using Max = Extreme<false>;

}  // namespace
}  // namespace hvd::kernels
