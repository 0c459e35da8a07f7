// Naive scalar arithmetic on every element type: what the kernels are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/integer_types.h"
#include "base/types.h"
#include "tests/check.h"

namespace kernel_reference {

using hvd::DataType;
using hvd::ReduceOp;
using hvd::Reduction;

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
struct Truth {
  uint8_t byte;
};

// Rounds a finite magnitude to `digits` binary digits, but not finer than 2^lowest; ties to even.
inline double round_to(double x, int digits, int lowest) {
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - digits, lowest));
  return std::nearbyint(x / unit) * unit;
}

inline float widen(Half h) {
  const int exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  float value = exponent == 0    ? std::ldexp(static_cast<float>(fraction), -24)
                : exponent == 31 ? (fraction ? NAN : INFINITY)
                                 : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return h.bits & 0x8000 ? -value : value;
}
inline Half narrow_half(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7e00)};
  double m = std::fabs(x);
  if (m != 0 && std::isfinite(m)) m = round_to(m, 11, -24);
  if (m >= 65536) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (m < 0x1p-14) return {static_cast<uint16_t>(sign | static_cast<int>(m * 0x1p24))};
  int exponent;
  const double fraction = std::frexp(m, &exponent);  // m = fraction * 2^exponent, fraction in [0.5, 1)
  return {static_cast<uint16_t>(sign | (exponent + 14) << 10 | (static_cast<int>(fraction * 2048) - 1024))};
}
inline float widen(Brain b) {
  const uint32_t bits = static_cast<uint32_t>(b.bits) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline Brain narrow_brain(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7fc0)};
  double m = std::fabs(x);
  if (m != 0 && std::isfinite(m)) m = round_to(m, 8, -133);
  const float rounded = m >= 0x1p128 ? INFINITY : static_cast<float>(m);
  uint32_t bits;
  std::memcpy(&bits, &rounded, 4);
  CHECK((bits & 0xffff) == 0);
  return {static_cast<uint16_t>(sign | bits >> 16)};
}

template <class F>
F float_op(ReduceOp op, F a, F b) {
  if (op == ReduceOp::kSum) return a + b;
  if (op == ReduceOp::kProduct) return a * b;
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  const bool a_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return (op == ReduceOp::kMin) == a_less ? a : b;
}

// One accumulator type, one way in and one way out per element type.
template <class T>
struct Reference {  // integers
  using Acc = T;
  static Acc load(T x) { return x; }
  static Acc apply(ReduceOp op, Acc a, Acc b) {
    // In 64 unsigned bits: narrower unsigned types would be promoted to int.
    if (op == ReduceOp::kSum) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == ReduceOp::kProduct) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
  static T finish(Acc x, const Reduction& r) {
    if (r.factor == 1.0) return x;
    const long double y = static_cast<double>(x) * r.factor;  // long double holds every int64
    using L = std::numeric_limits<T>;
    return std::isnan(y) ? T{0} : y <= L::min() ? L::min() : y >= L::max() ? L::max() : static_cast<T>(y);
  }
};
template <class F>
struct FloatReference {
  using Acc = F;
  static Acc load(F x) { return x; }
  static Acc apply(ReduceOp op, Acc a, Acc b) { return float_op(op, a, b); }
  static F finish(Acc x, const Reduction& r) { return r.factor == 1.0 ? x : x * static_cast<F>(r.factor); }
};
template <>
struct Reference<float> : FloatReference<float> {};
template <>
struct Reference<double> : FloatReference<double> {};
template <>
struct Reference<Half> : FloatReference<float> {
  static float load(Half x) { return widen(x); }
  static Half finish(float x, const Reduction& r) { return narrow_half(FloatReference<float>::finish(x, r)); }
};
template <>
struct Reference<Brain> : FloatReference<float> {
  static float load(Brain x) { return widen(x); }
  static Brain finish(float x, const Reduction& r) {
    return narrow_brain(FloatReference<float>::finish(x, r));
  }
};
template <>
struct Reference<Truth> {
  using Acc = std::pair<bool, bool>;  // any, all
  static Acc load(Truth x) { return {x.byte != 0, x.byte != 0}; }
  static Acc apply(ReduceOp, Acc a, Acc b) { return {a.first || b.first, a.second && b.second}; }
  static Truth finish(Acc x, const Reduction& r) {
    const bool all = r.op == ReduceOp::kMin || r.op == ReduceOp::kProduct;
    return {all ? x.second : x.first};
  }
};

template <class T>
bool same(T a, T b) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    if (std::isnan(widen(a)) && std::isnan(widen(b))) return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class Body>
void with_floating_type(DataType type, Body body) {
  switch (type) {
    case DataType::kFloat16:
      return body(Half{});
    case DataType::kBfloat16:
      return body(Brain{});
    case DataType::kFloat32:
      return body(float{});
    case DataType::kFloat64:
      return body(double{});
    default:
      CHECK(!"a floating type");
  }
}

// Calls body(T{}, per) with the C++ type of `type` and how many of them make an element.
template <class Body>
void with_type(DataType type, Body body) {
  switch (type) {
    case DataType::kBool:
      return body(Truth{}, 1);
    case DataType::kComplex64:
      return body(float{}, 2);
    case DataType::kComplex128:
      return body(double{}, 2);
    default:
      const auto whole = [&](auto zero) { body(zero, 1); };
      if (!with_integer_type(type, whole)) with_floating_type(type, whole);
  }
}

}  // namespace kernel_reference
