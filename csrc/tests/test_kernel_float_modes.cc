// The kernels in every floating-point mode that a caller's thread may have.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/neutral.h"
#include "tests/check.h"
#include "tests/float_modes.h"
#include "tests/kernel_data.h"

using namespace kernel_data;

namespace {

// Runs `body`, which returns bytes, in the normal mode and in others; they must be the same, and so must the
// thread's mode be afterwards.
template <class Body>
void in_every_mode(Body body) {
  const std::vector<uint8_t> expected = body();
  for (uint64_t mode : float_modes::kOdd) {
    std::vector<uint8_t> result;
    {
      const float_modes::Odd odd(mode);
      result = body();
      CHECK(float_modes::get() == mode);
    }
    CHECK(result == expected);
  }
}

template <class T>
void check_modes(DataType type) {
  constexpr size_t kCount = 1003;
  using Acc = typename Reference<T>::Acc;
  std::vector<T> a(kCount), b(kCount), to(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    // Subnormal results of subnormal and of normal numbers, and roundings. No NaN, whose bits may differ.
    const auto tiny = [] {
      const auto x = static_cast<Acc>(random_bits() % 2001) - 1000;
      return x * std::numeric_limits<Acc>::denorm_min();
    };
    const auto any = [] { return static_cast<Acc>(static_cast<int64_t>(random_bits())); };
    Acc x = i % 2 ? tiny() : any() * static_cast<Acc>(0x1p-60), y = i % 2 ? tiny() : any();
    if constexpr (std::is_same_v<T, Half>) {
      a[i] = {static_cast<uint16_t>(random_bits() & 0xbbff)},
      b[i] = {static_cast<uint16_t>(random_bits() & 0x83ff)};
    } else if constexpr (std::is_same_v<T, Brain>) {
      a[i] = narrow_brain(x), b[i] = narrow_brain(y);
    } else {
      a[i] = x, b[i] = y;
    }
  }
  const void* sources[2] = {a.data(), b.data()};
  const auto bytes = [&] {
    const auto* first = reinterpret_cast<const uint8_t*>(to.data());
    return std::vector<uint8_t>(first, first + to.size() * sizeof(T));
  };
  with_each_set([&](const char*) {
    for (double factor : {1.0, 1.0 / 3})
      in_every_mode([&] {
        kernels::reduce({type, ReduceOp::kSum, factor}, to.data(), nullptr, sources, 2, kCount);
        return bytes();
      });
    in_every_mode([&] {
      kernels::reduce({type, ReduceOp::kProduct, 1.0}, to.data(), nullptr, sources, 2, kCount);
      return bytes();
    });
    in_every_mode([&] {
      kernels::reduce({type, ReduceOp::kMin, 1.0}, to.data(), nullptr, sources, 2, kCount);
      return bytes();
    });
    in_every_mode([&] {
      kernels::scale(type, to.data(), a.data(), kCount, 0.7);
      return bytes();
    });
    in_every_mode([&] {
      kernels::combine(type, to.data(), a.data(), b.data(), kCount, 0.3, 0.9);
      return bytes();
    });
    in_every_mode([&] {
      double dots[3] = {};
      kernels::dots(type, a.data(), b.data(), kCount, dots);
      const auto* first = reinterpret_cast<const uint8_t*>(dots);
      return std::vector<uint8_t>(first, first + sizeof dots);
    });
  });
}

TEST(the_callers_floating_point_mode_is_of_no_account) {
  for (DataType type : kFloating)
    with_floating_type(type, [&](auto zero) { check_modes<decltype(zero)>(type); });
  const std::vector<int64_t> values = {INT64_MAX, INT64_MIN, 1, -1, 1000000007, -999999999999999999};
  with_each_set([&](const char*) {
    in_every_mode([&] {
      std::vector<int64_t> wide(2 * values.size()), to(values.size());
      kernels::widen(DataType::kInt64, 3, wide.data(), values.data(), values.size());
      kernels::divide(DataType::kInt64, 3, 0.7, to.data(), wide.data(), values.size());
      const auto* first = reinterpret_cast<const uint8_t*>(to.data());
      return std::vector<uint8_t>(first, first + to.size() * sizeof to[0]);
    });
  });
}

}  // namespace

int main(int argc, char** argv) { return check::run_all(argc, argv); }
