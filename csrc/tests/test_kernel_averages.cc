// Exact averages of integers, and the elements that change nothing, against naive arithmetic.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/neutral.h"
#include "tests/check.h"
#include "tests/kernel_data.h"
#include "tests/kernel_reference.h"

using namespace kernel_data;

namespace {

template <class T>
T average_of(const std::vector<T>& values, double factor) {
  __int128 sum = 0;
  for (T x : values) sum += x;
  const auto n = static_cast<int>(values.size());
  if (factor == 1.0) return static_cast<T>(sum / n);
  const double y = static_cast<double>(sum) * factor / n;
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  return y <= static_cast<double>(least) ? least : y >= static_cast<double>(most) ? most : static_cast<T>(y);
}

template <class T>
void check_average(DataType type, int n, double factor) {
  constexpr size_t kCount = 1003;
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  std::vector<std::vector<T>> values(kCount, std::vector<T>(static_cast<size_t>(n)));
  for (std::vector<T>& ranks : values)
    for (T& x : ranks) x = static_cast<T>(random_bits());
  std::fill(values[0].begin(), values[0].end(), most);
  std::fill(values[1].begin(), values[1].end(), least);
  for (T& x : values[2]) x = random_bits() % 2 ? least : most;
  for (size_t i = 3; i < 100; ++i)
    for (T& x : values[i]) x = static_cast<T>(random_bits() % 7 - 3);
  with_each_set([&](const char*) {
    const kernels::Wide wide = kernels::wide_for(type, n);
    std::vector<uint8_t> sums(kCount * wide.bytes()), one(sums.size());
    const void* sources[2] = {sums.data(), one.data()};
    Array<T> own(kCount, 1), result(kCount, 3);
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      for (size_t i = 0; i < kCount; ++i) own[i] = values[i][r];
      kernels::widen(type, n, one.data(), own.data(), kCount);
      kernels::reduce({wide.type, ReduceOp::kSum, 1.0}, sums.data(), nullptr, sources, 2, kCount * wide.per);
    }
    kernels::divide(type, n, factor, result.data(), sums.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) CHECK(result[i] == average_of(values[i], factor));
    CHECK(result.guards_intact());
  });
}

TEST(averages_of_integers_are_exact) {
  for (int n : {1, 2, 3, 7, 49, 256})
    for (double factor : {1.0, 0.5, 49.0, -1e30}) {
      check_average<uint8_t>(DataType::kUint8, n, factor);
      check_average<int8_t>(DataType::kInt8, n, factor);
      check_average<uint16_t>(DataType::kUint16, n, factor);
      check_average<int16_t>(DataType::kInt16, n, factor);
      check_average<int32_t>(DataType::kInt32, n, factor);
      check_average<int64_t>(DataType::kInt64, n, factor);
    }
}

TEST(more_ranks_than_fit_in_32_bits) {
  for (int n : {1 << 15, (1 << 15) + 1, 1 << 22}) {
    const uint16_t small = UINT16_MAX;
    const int32_t large = INT32_MIN;
    const auto average = [&](DataType type, const void* value, void* to) {
      alignas(8) uint8_t one[8];
      kernels::widen(type, n, one, value, 1);
      // The sum of n equal values.
      if (kernels::wide_for(type, n).type == DataType::kInt32) {
        int32_t sum;
        std::memcpy(&sum, one, sizeof sum);
        CHECK(!__builtin_mul_overflow(sum, n, &sum));
        kernels::divide(type, n, 1.0, to, &sum, 1);
      } else {
        double sum;
        std::memcpy(&sum, one, sizeof sum);
        sum *= n;
        kernels::divide(type, n, 1.0, to, &sum, 1);
      }
    };
    uint16_t small_average;
    int32_t large_average;
    average(DataType::kUint16, &small, &small_average);
    average(DataType::kInt32, &large, &large_average);
    CHECK(small_average == small && large_average == large);
  }
}

// Bits that survive the company of neutral elements, whatever the order; NaNs as NaNs.
template <class T>
void check_neutral(DataType type, ReduceOp op, size_t per) {
  constexpr size_t kCount = 513;
  const size_t scalars = kCount * per;
  Array<T> values(scalars, 1), neutral(scalars, 2), to(scalars, 3);
  values.randomise();
  if constexpr (std::is_same_v<T, Truth>)
    for (size_t i = 0; i < scalars; ++i) values[i].byte = values[i].byte != 0;
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) values[0].bits = 0x8000;
  kernels::fill_neutral(type, op, neutral.data(), kCount);
  CHECK(neutral.guards_intact());
  const ReduceOp applied = op == ReduceOp::kAverage || op == ReduceOp::kAdasum ? ReduceOp::kSum : op;
  for (size_t place = 0; place < 3; ++place) {
    const void* sources[3] = {neutral.data(), neutral.data(), neutral.data()};
    sources[place] = values.data();
    kernels::reduce({type, applied, 1.0}, to.data(), nullptr, sources, 3, kCount);
    for (size_t i = 0; i < scalars; ++i) CHECK(same(to[i], values[i]));
  }
}

TEST(neutral_elements_change_nothing) {
  for (DataType type : kAll)
    for (ReduceOp op : {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kAdasum, ReduceOp::kMin, ReduceOp::kMax,
                        ReduceOp::kProduct})
      if (!is_complex(type) || op == ReduceOp::kSum || op == ReduceOp::kAverage)
        with_type(type, [&](auto zero, int per) {
          check_neutral<decltype(zero)>(type, op, static_cast<size_t>(per));
        });
  uint8_t averaged = 1;  // the average of bool is "and", but not with ranks that have nothing
  kernels::fill_neutral(DataType::kBool, ReduceOp::kAverage, &averaged, 1);
  CHECK(averaged == 0);
}

}  // namespace

int main(int argc, char** argv) { return check::run_all(argc, argv); }
