#include "kernels/neutral.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/integer_types.h"

namespace hvd::kernels {
namespace {

// The neutral elements of sums (Average and Adasum are sums here), minima, maxima and products.
template <class T>
struct Neutral {
  T sum, min, max, product;
};

template <class T>
constexpr Neutral<T> kInteger = {0, std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 1};
// x + -0 is x for both zeros, x + 0 is not.
template <class T>
constexpr Neutral<T> kFloating = {-T{0}, std::numeric_limits<T>::infinity(),
                                  -std::numeric_limits<T>::infinity(), T{1}};
// By their bits, in the same order.
constexpr Neutral<uint16_t> kFloat16 = {0x8000, 0x7c00, 0xfc00, 0x3c00};
constexpr Neutral<uint16_t> kBfloat16 = {0x8000, 0x7f80, 0xff80, 0x3f80};
// Sum and Max are "or", Min and Product are "and".
constexpr Neutral<uint8_t> kBool = {0, 1, 0, 1};

template <class T>
void fill(const Neutral<T>& neutral, ReduceOp op, void* to, size_t count) {
  const T value = op == ReduceOp::kMin       ? neutral.min
                  : op == ReduceOp::kMax     ? neutral.max
                  : op == ReduceOp::kProduct ? neutral.product
                                             : neutral.sum;
  std::fill_n(static_cast<T*>(to), count, value);
}

}  // namespace

void fill_neutral(DataType type, ReduceOp op, void* to, size_t count) {
  switch (type) {
    default:
      with_integer_type(type, [&](auto zero) { fill(kInteger<decltype(zero)>, op, to, count); });
      return;
    case DataType::kFloat16:
      return fill(kFloat16, op, to, count);
    case DataType::kBfloat16:
      return fill(kBfloat16, op, to, count);
    case DataType::kFloat32:
      return fill(kFloating<float>, op, to, count);
    case DataType::kFloat64:
      return fill(kFloating<double>, op, to, count);
    case DataType::kBool:
      return fill(kBool, op, to, count);
    case DataType::kComplex64:  // sums only, of both parts
      return fill(kFloating<float>, op, to, 2 * count);
    case DataType::kComplex128:
      return fill(kFloating<double>, op, to, 2 * count);
  }
}

}  // namespace hvd::kernels
