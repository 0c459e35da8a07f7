// Factors for integers; see elements.h for how these headers are used. Plain loops: the compiler
// vectorises the narrow types.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::kernels {
namespace {

template <class T>
struct Limits {
  static constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
  static constexpr T kMax = static_cast<T>(~uint64_t{0} >> (64 - 8 * sizeof(T) + (kSigned ? 1 : 0)));
  static constexpr T kMin = static_cast<T>(-kMax - 1) * static_cast<T>(kSigned);
};

// Truncates toward zero; what does not fit becomes the nearest value that does, NaN becomes 0.
template <class T>
inline T truncate(double x) {
  if constexpr (sizeof(T) == 8) {
    // 2^63 is the first double that does not fit; the largest integer itself is not a double.
    if (!(x == x)) return 0;
    if (x >= 0x1p63) return Limits<T>::kMax;
    if (x < -0x1p63) return Limits<T>::kMin;
    return static_cast<T>(x);
  } else {
    double y = x == x ? x : 0.0;
    y = y < double{Limits<T>::kMin} ? double{Limits<T>::kMin} : y;
    y = y > double{Limits<T>::kMax} ? double{Limits<T>::kMax} : y;
    return static_cast<T>(static_cast<int32_t>(y));
  }
}

template <class T>
void multiply_integers(T* values, size_t count, double factor) {
  for (size_t i = 0; i < count; ++i) values[i] = truncate<T>(static_cast<double>(values[i]) * factor);
}

}  // namespace
}  // namespace hvd::kernels
