// widen() and divide() for the instruction set of the including file; see elements.h for how that works.
// Plain loops: the compiler vectorises those of the narrow types.
#pragma once

#include "base/integer_types.h"
#include "base/types.h"
#include "kernels/integer_finish.h"

namespace hvd::kernels {
namespace {

template <class T, class W>
void widen_as(void* to, const void* from, size_t count) {
  auto* wide = static_cast<W*>(to);
  const auto* values = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) wide[i] = static_cast<W>(values[i]);
}

// Exact without a factor: the sum is exact in double, and a quotient that is no integer is at least 1/n away
// from one, far more than the division's rounding error.
template <class T, class W>
void divide_as(int n, double factor, void* to, const void* sums, size_t count) {
  auto* results = static_cast<T*>(to);
  const auto* wide = static_cast<const W*>(sums);
  for (size_t i = 0; i < count; ++i) results[i] = truncate<T>(static_cast<double>(wide[i]) * factor / n);
}

// For 64 bits there is no wider type. Neither the sum of n quotients by n nor that of the remainders can
// overflow.
struct Quotient {
  int64_t whole, rest;  // of a value, or the sums of several's: the value(s) are whole * n + rest
};

void widen_64_bits(int n, void* to, const void* from, size_t count) {
  auto* wide = static_cast<Quotient*>(to);
  const auto* values = static_cast<const int64_t*>(from);
  for (size_t i = 0; i < count; ++i) wide[i] = {values[i] / n, values[i] % n};
}

void divide_64_bits(int n, double factor, void* to, const void* sums, size_t count) {
  auto* results = static_cast<int64_t*>(to);
  const auto* wide = static_cast<const Quotient*>(sums);
  for (size_t i = 0; i < count; ++i) {
    const Quotient sum = wide[i];
    if (factor == 1.0) {
      const int64_t whole = sum.whole + sum.rest / n, rest = sum.rest % n;
      results[i] = whole - (whole > 0 && rest < 0) + (whole < 0 && rest > 0);
    } else {
      const auto exact = static_cast<__int128>(sum.whole) * n + sum.rest;
      results[i] = truncate<int64_t>(static_cast<double>(exact) * factor / n);
    }
  }
}

void widen_any(DataType type, DataType wide, int n, void* to, const void* from, size_t count) {
  with_integer_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 8)
      widen_64_bits(n, to, from, count);
    else if (sizeof(T) <= 2 && wide == DataType::kInt32)
      widen_as<T, int32_t>(to, from, count);
    else
      widen_as<T, double>(to, from, count);
  });
}

void divide_any(DataType type, DataType wide, int n, double factor, void* to, const void* sums,
                size_t count) {
  with_integer_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 8)
      divide_64_bits(n, factor, to, sums, count);
    else if (sizeof(T) <= 2 && wide == DataType::kInt32)
      divide_as<T, int32_t>(n, factor, to, sums, count);
    else
      divide_as<T, double>(n, factor, to, sums, count);
  });
}

}  // namespace
}  // namespace hvd::kernels
