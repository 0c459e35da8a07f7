// The kernels against naive scalar arithmetic, and every instruction set against the generic one.
// `test_kernels speed` prints throughput instead.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/neutral.h"
#include "tests/check.h"
#include "tests/float_modes.h"
#include "tests/kernel_reference.h"

using namespace hvd;
using namespace kernel_reference;

namespace {

constexpr DataType kAll[] = {
    DataType::kUint8, DataType::kInt8,      DataType::kUint16,    DataType::kInt16,   DataType::kInt32,
    DataType::kInt64, DataType::kFloat16,   DataType::kBfloat16,  DataType::kFloat32, DataType::kFloat64,
    DataType::kBool,  DataType::kComplex64, DataType::kComplex128};
constexpr DataType kFloating[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                                  DataType::kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

std::vector<const char*> available() {
  std::vector<const char*> names;
  const char* before = kernels::instruction_set();
  for (const char* name : {"generic", "avx2", "avx512"})
    if (kernels::use_instruction_set(name)) names.push_back(name);
  CHECK(kernels::use_instruction_set(before));
  return names;
}

template <class Body>
void with_each_set(Body body) {
  const char* before = kernels::instruction_set();
  for (const char* name : available()) {
    CHECK(kernels::use_instruction_set(name));
    body(name);
  }
  CHECK(kernels::use_instruction_set(before));
}

// ---- data
// -----------------------------------------------------------------------------------------------------

std::mt19937_64 random_bits(7);

template <class F>
F odd_float() {
  constexpr F specials[] = {F(0.0), -F(0.0), F(INFINITY), -F(INFINITY), F(NAN), F(1.0), F(-1.0)};
  const uint64_t draw = random_bits();
  if (draw % 8 == 0) return specials[draw / 8 % 7];
  if (draw % 8 == 1) return std::numeric_limits<F>::denorm_min() * static_cast<F>(draw / 8 % 1000);
  return static_cast<F>(
      std::ldexp(static_cast<double>(static_cast<int64_t>(draw)), static_cast<int>(draw % 37) - 80));
}

template <class T>
T odd_value() {
  if constexpr (std::is_floating_point_v<T>) {
    return odd_float<T>();
  } else if constexpr (std::is_same_v<T, Truth>) {
    return {static_cast<uint8_t>(random_bits() % 2 ? 0 : random_bits() % 4)};
  } else if constexpr (std::is_class_v<T>) {
    return {static_cast<uint16_t>(random_bits())};
  } else {
    return static_cast<T>(random_bits());
  }
}

// `count` elements that begin `shift` elements after a cache line, between guards that must survive.
template <class T>
class Array {
 public:
  Array(size_t count, size_t shift) : count_(count), memory_(count * sizeof(T) + 256) {
    const size_t base = -reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    begin_ = reinterpret_cast<T*>(memory_.data() + base + 64 + shift % (64 / sizeof(T)) * sizeof(T));
    std::memset(memory_.data(), 0x5a, memory_.size());
  }
  void randomise() {
    for (size_t i = 0; i < count_; ++i) begin_[i] = odd_value<T>();
  }
  T* data() { return begin_; }
  T& operator[](size_t i) { return begin_[i]; }
  bool guards_intact() const {
    const unsigned char* first = reinterpret_cast<const unsigned char*>(begin_);
    for (const unsigned char& byte : memory_)
      if ((&byte < first || &byte >= first + count_ * sizeof(T)) && byte != 0x5a) return false;
    return true;
  }

 private:
  size_t count_;
  std::vector<unsigned char> memory_;
  T* begin_;
};

struct Variant {
  int n;
  size_t count;
  size_t shift;
  int alias;  // `to` is this source; -1: none
  bool copy;
  int copy_alias;  // `copy` is this source; -1: none
};

template <class T>
void check_reduce(const Reduction& r, int per, const Variant& v) {
  const size_t scalars = v.count * static_cast<size_t>(per);
  std::vector<Array<T>> inputs;
  for (int k = 0; k < v.n; ++k) {
    inputs.emplace_back(scalars, v.shift * static_cast<size_t>(k + 1));
    inputs.back().randomise();
  }
  std::vector<T> expected(scalars);
  Reduction sum = r;
  if (per == 2) sum.op = ReduceOp::kSum;
  const bool untouched = v.n == 1 && r.factor == 1.0 && !std::is_same_v<T, Truth>;
  for (size_t i = 0; i < scalars; ++i) {
    auto acc = Reference<T>::load(inputs[0][i]);
    for (int k = 1; k < v.n; ++k)
      acc = Reference<T>::apply(sum.op, acc, Reference<T>::load(inputs[static_cast<size_t>(k)][i]));
    expected[i] = untouched ? inputs[0][i] : Reference<T>::finish(acc, sum);
  }
  std::vector<std::vector<T>> saved;
  for (auto& input : inputs) saved.emplace_back(input.data(), input.data() + scalars);
  with_each_set([&](const char* set) {
    for (size_t k = 0; k < inputs.size() && scalars > 0; ++k)
      std::memcpy(static_cast<void*>(inputs[k].data()), saved[k].data(), scalars * sizeof(T));
    std::vector<const void*> sources;
    for (auto& input : inputs) sources.push_back(input.data());
    Array<T> separate(scalars, v.shift * 5 + 1), separate_copy(scalars, v.shift * 3);
    T* to = v.alias < 0 ? separate.data() : inputs[static_cast<size_t>(v.alias)].data();
    T* copy = v.copy_alias < 0 ? separate_copy.data() : inputs[static_cast<size_t>(v.copy_alias)].data();
    kernels::reduce(r, to, v.copy ? copy : nullptr, sources.data(), v.n, v.count);
    for (size_t i = 0; i < scalars; ++i) {
      if (!same(to[i], expected[i]) || (v.copy && std::memcmp(&to[i], &copy[i], sizeof(T)) != 0)) {
        std::fprintf(stderr, "%s %s op %d n %d count %zu element %zu factor %g\n", set, name_of(r.type),
                     static_cast<int>(r.op), v.n, v.count, i, r.factor);
        CHECK(!"reduce differs from the reference");
      }
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      CHECK(inputs[k].guards_intact());
      if (static_cast<int>(k) != v.alias && static_cast<int>(k) != v.copy_alias && scalars > 0)
        CHECK(std::memcmp(inputs[k].data(), saved[k].data(), scalars * sizeof(T)) == 0);
    }
    CHECK(separate.guards_intact() && separate_copy.guards_intact());
  });
}

void check_variants(const Reduction& r, const std::vector<int>& ns, const std::vector<size_t>& counts) {
  with_type(r.type, [&](auto zero, int per) {
    size_t turn = 0;
    for (int n : ns)
      for (size_t count : counts)
        for (int alias : {-1, 0, n - 1})
          for (int copying : {0, 1, 2}) {
            const int other = copying == 2 && n > 1 ? (alias == 0 ? n - 1 : 0) : -1;
            check_reduce<decltype(zero)>(r, per, {n, count, turn++ % 7, alias, copying > 0, other});
          }
  });
}

TEST(reduce_matches_the_reference) {
  for (DataType type : kAll)
    for (ReduceOp op : kOps) check_variants({type, op, 1.0}, {1, 2, 3, 4, 5, 8}, {0, 1, 7, 33, 259});
}

TEST(reduce_applies_a_factor) {
  for (DataType type : kAll)
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax})
      for (double factor : {0.3, -1e30}) check_variants({type, op, factor}, {1, 2, 3}, {1, 131});
}

TEST(reduce_takes_many_sources) {
  for (DataType type : kAll)
    for (ReduceOp op : kOps) check_variants({type, op, 0.5}, {15, 16, 17, 31, 32, 47}, {77});
  for (DataType type : {DataType::kFloat16, DataType::kFloat32, DataType::kInt32})
    check_variants({type, ReduceOp::kSum, 1.0}, {300}, {9001});
}

TEST(reduce_handles_blocks) {
  for (DataType type : kAll) check_variants({type, ReduceOp::kSum, 0.5}, {2}, {8192, 20011});
  for (DataType type : kAll) check_variants({type, ReduceOp::kMin, 1.0}, {3}, {20011});
}

TEST(average_and_adasum_are_sums) {
  const float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
  const void* sources[2] = {a, b};
  for (ReduceOp op : {ReduceOp::kAverage, ReduceOp::kAdasum}) {
    float to[3];
    kernels::reduce({DataType::kFloat32, op, 0.5}, to, nullptr, sources, 2, 3);
    CHECK(to[0] == 5.5f && to[1] == 11 && to[2] == 16.5f);
  }
}

TEST(integers_out_of_range_saturate) {
  const int64_t wide[4] = {INT64_MAX, INT64_MIN, 5, -5};
  int64_t scaled[4];
  kernels::scale(DataType::kInt64, scaled, wide, 4, 2.0);
  CHECK(scaled[0] == INT64_MAX && scaled[1] == INT64_MIN && scaled[2] == 10 && scaled[3] == -10);
  const int64_t edge[2] = {int64_t{1} << 62, -(int64_t{1} << 62)};  // 2^63 is the first that does not fit
  kernels::scale(DataType::kInt64, scaled, edge, 2, 2.0);
  CHECK(scaled[0] == INT64_MAX && scaled[1] == INT64_MIN);
  kernels::scale(DataType::kInt64, scaled, wide, 4, NAN);
  CHECK(scaled[0] == 0 && scaled[3] == 0);
  const uint8_t bytes[2] = {200, 3};
  uint8_t small[2];
  kernels::scale(DataType::kUint8, small, bytes, 2, -1.0);
  CHECK(small[0] == 0 && small[1] == 0);
  kernels::scale(DataType::kUint8, small, bytes, 2, 1.5);
  CHECK(small[0] == 255 && small[1] == 4);
}

// ---- all 16-bit values
// ----------------------------------------------------------------------------------------

template <class T>
void check_all_values(DataType type) {
  std::vector<T> all(65536), to(65536), other(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  with_each_set([&](const char*) {
    for (double factor : {1.0, 0.5, 1.0009765625, 0.3, 3.0, 1e-3, 1e-30, 65536.0}) {
      const Reduction r{type, ReduceOp::kSum, factor};
      const void* one = all.data();
      kernels::reduce(r, to.data(), nullptr, &one, 1, all.size());
      for (size_t i = 0; i < all.size(); ++i)
        CHECK(same(to[i], factor == 1.0 ? all[i] : Reference<T>::finish(widen(all[i]), r)));
    }
    // Unchanged by adding zero: every value survives the way through float32. -0 + +0 is +0.
    std::memset(static_cast<void*>(other.data()), 0, other.size() * sizeof(T));
    const Reduction r{type, ReduceOp::kSum, 1.0};
    const void* with_zero[2] = {all.data(), other.data()};
    kernels::reduce(r, to.data(), nullptr, with_zero, 2, all.size());
    for (size_t i = 0; i < all.size(); ++i) CHECK(same(to[i], i == 0x8000 ? T{0} : all[i]));
    for (int round = 0; round < 8; ++round) {
      for (T& x : other) x.bits = static_cast<uint16_t>(random_bits());
      for (ReduceOp op : kOps) {
        const Reduction pair{type, op, 1.0};
        const void* sources[2] = {all.data(), other.data()};
        kernels::reduce(pair, to.data(), nullptr, sources, 2, all.size());
        for (size_t i = 0; i < all.size(); ++i)
          CHECK(same(to[i], Reference<T>::finish(float_op(op, widen(all[i]), widen(other[i])), pair)));
      }
    }
  });
}

TEST(every_float16_value) { check_all_values<Half>(DataType::kFloat16); }
TEST(every_bfloat16_value) { check_all_values<Brain>(DataType::kBfloat16); }

// NaNs come out quiet: not as infinity, not as a signalling NaN.
TEST(nan_stays_quiet) {
  with_each_set([](const char*) {
    const uint16_t half[4] = {0x7c01, 0xfc01, 0x7fff, 0x7e00}, brain[4] = {0x7f81, 0xff81, 0x7fff, 0x7fc0};
    const uint16_t zero[4] = {};
    const void* halves[2] = {half, zero};
    const void* brains[2] = {brain, zero};
    for (ReduceOp op : kOps) {
      uint16_t to[4];
      kernels::reduce({DataType::kFloat16, op, 1.0}, to, nullptr, halves, 2, 4);
      for (uint16_t x : to) CHECK((x & 0x7e00) == 0x7e00);
      kernels::reduce({DataType::kBfloat16, op, 1.0}, to, nullptr, brains, 2, 4);
      for (uint16_t x : to) CHECK((x & 0x7fc0) == 0x7fc0);
    }
  });
}

// ---- instruction sets against each other
// ----------------------------------------------------------------------

// The same bytes, NaNs aside: which of two NaN payloads survives an addition is the compiler's choice.
template <class T>
void check_sets_agree(DataType type, size_t per) {
  constexpr size_t kCount = 5003;
  const size_t scalars = kCount * per;
  for (ReduceOp op : kOps) {
    for (double factor : {1.0, 0.7}) {
      std::vector<Array<T>> inputs;
      std::vector<const void*> sources;
      for (size_t k = 0; k < 20; ++k) {
        inputs.emplace_back(scalars, k);
        inputs.back().randomise();
      }
      for (auto& input : inputs) sources.push_back(input.data());
      for (int n : {1, 2, 4, 7, 20}) {
        std::vector<T> first(scalars), to(scalars);
        with_each_set([&](const char* set) {
          std::vector<T>& result = std::string(set) == "generic" ? first : to;
          kernels::reduce({type, op, factor}, result.data(), nullptr, sources.data(), n, kCount);
          for (size_t i = 0; i < scalars && &result == &to; ++i) CHECK(same(to[i], first[i]));
        });
      }
    }
  }
}

TEST(instruction_sets_give_the_same_bits) {
  for (DataType type : kAll)
    with_type(type,
              [&](auto zero, int per) { check_sets_agree<decltype(zero)>(type, static_cast<size_t>(per)); });
}

TEST(copies_are_exact) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4099}}) {
    std::vector<uint8_t> from(bytes + 1), before(bytes + 2, 0xee);
    for (uint8_t& byte : from) byte = static_cast<uint8_t>(random_bits());
    with_each_set([&](const char*) {
      for (const void* ahead : {static_cast<const void*>(nullptr), static_cast<const void*>(before.data())}) {
        std::vector<uint8_t> to = before;
        kernels::copy(to.data() + 1, from.data() + 1, bytes, ahead);  // nothing is aligned
        CHECK(std::equal(to.begin() + 1, to.end() - 1, from.begin() + 1));
        CHECK(to.front() == 0xee && to.back() == 0xee);
      }
    });
  }
}

#if defined(__x86_64__)
TEST(instruction_sets_are_those_that_the_kernel_sees) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && flags.rfind("flags", 0) != 0) continue;
  flags += " ";
  const auto has = [&flags](const char* name) {
    return flags.find(" " + std::string(name) + " ") != flags.npos;
  };
  const bool avx2 = has("avx2") && has("f16c");
  const bool avx512 =
      avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") && has("avx512_vbmi2");
  const std::string before = kernels::instruction_set();
  CHECK(before == (avx512 ? "avx512" : avx2 ? "avx2" : "generic"));
  CHECK(kernels::use_instruction_set("avx512") == avx512);
  CHECK(kernels::use_instruction_set("avx2") == avx2);
  CHECK(kernels::use_instruction_set(before.c_str()));
}
#endif

TEST(unknown_instruction_set_is_refused) {
  const std::string before = kernels::instruction_set();
  CHECK(!kernels::use_instruction_set("abacus"));
  CHECK(before == kernels::instruction_set());
}

// ---- scale, copy, adasum
// --------------------------------------------------------------------------------------

TEST(scale_in_place_and_out_of_place) {
  for (DataType type : kAll) {
    with_type(type, [&](auto zero, int per) {
      using T = decltype(zero);
      for (size_t count : {size_t{0}, size_t{1}, size_t{1023}}) {
        const size_t scalars = count * static_cast<size_t>(per);
        Array<T> from(scalars, 3), to(scalars, 1);
        from.randomise();
        std::vector<T> expected(from.data(), from.data() + scalars);
        const Reduction r{type, ReduceOp::kSum, 0.37};
        if constexpr (!std::is_same_v<T, Truth>)
          for (T& x : expected) x = Reference<T>::finish(Reference<T>::load(x), r);
        kernels::scale(type, to.data(), from.data(), count, 0.37);
        for (size_t i = 0; i < scalars; ++i) CHECK(same(to[i], expected[i]));
        kernels::scale(type, from.data(), from.data(), count, 0.37);
        for (size_t i = 0; i < scalars; ++i) CHECK(same(from[i], expected[i]));
        CHECK(from.guards_intact() && to.guards_intact());
      }
    });
  }
}

TEST(dots_match_the_reference) {
  for (DataType type : kFloating) {
    with_floating_type(type, [&](auto zero) {
      using T = decltype(zero);
      for (size_t count : {0, 1, 5, 8, 1024, 5003}) {
        Array<T> a(count, 1), b(count, 2);
        double expected[3] = {1, 2, 3}, magnitude = 6;
        for (size_t i = 0; i < count; ++i) {
          const double draw[2] = {static_cast<double>(random_bits() % 2001) / 1000 - 1,
                                  static_cast<double>(random_bits() % 2001) / 1000 - 1};
          if constexpr (std::is_same_v<T, Half>) {
            a[i] = narrow_half(static_cast<float>(draw[0])), b[i] = narrow_half(static_cast<float>(draw[1]));
          } else if constexpr (std::is_same_v<T, Brain>) {
            a[i] = narrow_brain(static_cast<float>(draw[0])),
            b[i] = narrow_brain(static_cast<float>(draw[1]));
          } else {
            a[i] = static_cast<T>(draw[0]), b[i] = static_cast<T>(draw[1]);
          }
          const double x = Reference<T>::load(a[i]), y = Reference<T>::load(b[i]);
          expected[0] += x * y, expected[1] += x * x, expected[2] += y * y;
          magnitude += x * x + y * y;
        }
        double generic[3] = {};
        with_each_set([&](const char* set) {
          double sums[3] = {1, 2, 3};
          kernels::dots(type, a.data(), b.data(), count, sums);
          for (int k = 0; k < 3; ++k) CHECK(std::fabs(sums[k] - expected[k]) <= 1e-13 * magnitude);
          if (std::string(set) == "generic") std::memcpy(generic, sums, sizeof sums);
          CHECK(std::memcmp(generic, sums, sizeof sums) == 0);
        });
      }
    });
  }
}

TEST(combine_matches_the_reference) {
  for (DataType type : kFloating) {
    with_floating_type(type, [&](auto zero) {
      using T = decltype(zero);
      using Acc = typename Reference<T>::Acc;
      for (size_t count : {0, 1, 9, 1003}) {
        Array<T> a(count, 1), b(count, 2);
        a.randomise(), b.randomise();
        const std::vector<T> was_a(a.data(), a.data() + count), was_b(b.data(), b.data() + count);
        std::vector<T> expected(count);
        for (size_t i = 0; i < count; ++i) {
          const Acc x = Reference<T>::load(a[i]) * static_cast<Acc>(0.3);
          const Acc y = Reference<T>::load(b[i]) * static_cast<Acc>(-0.8);
          expected[i] = Reference<T>::finish(x + y, {});
        }
        with_each_set([&](const char*) {
          for (int alias : {0, 1, 2}) {
            std::copy(was_a.begin(), was_a.end(), a.data());
            std::copy(was_b.begin(), was_b.end(), b.data());
            Array<T> separate(count, 3);
            T* to = alias == 0 ? separate.data() : alias == 1 ? a.data() : b.data();
            kernels::combine(type, to, a.data(), b.data(), count, 0.3, -0.8);
            for (size_t i = 0; i < count; ++i) CHECK(same(to[i], expected[i]));
            CHECK(separate.guards_intact() && a.guards_intact() && b.guards_intact());
          }
        });
      }
    });
  }
}

// ---- exact averages, neutral elements
// -------------------------------------------------------------------------

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

// ---- floating-point modes
// -------------------------------------------------------------------------------------

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

// ---- throughput
// -----------------------------------------------------------------------------------------------

// Bytes of the sources per second, the best of several runs.
double throughput(DataType type, int n, size_t bytes, bool copying) {
  std::vector<std::vector<char>> memory(static_cast<size_t>(n) + 2, std::vector<char>(bytes + 64, 0));
  std::vector<const void*> sources;
  for (size_t k = 0; k < memory.size(); ++k) {
    char* p = memory[k].data();
    sources.push_back(p + -reinterpret_cast<uintptr_t>(p) % 64);
  }
  void* to = const_cast<void*>(sources[static_cast<size_t>(n)]);
  void* copy = copying ? const_cast<void*>(sources[static_cast<size_t>(n) + 1]) : nullptr;
  double best = 0;
  const int repeats = static_cast<int>((size_t{64} << 20) / bytes);
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < repeats; ++k)
      kernels::reduce({type, ReduceOp::kSum, 1.0}, to, copy, sources.data(), n, bytes / size_of(type));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) * n * repeats / time.count());
  }
  return best;
}

void print_speed() {
  std::printf("GB/s of sources read  %17s %17s\n", "256 KiB", "16 MiB");
  std::printf("%-22s%9s%9s%9s%9s\n", "", "no copy", "copy", "no copy", "copy");
  for (DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16})
    for (int n : {2, 4})
      with_each_set([&](const char* set) {
        std::printf("%-9s n=%d %-8s", name_of(type), n, set);
        for (size_t bytes : {size_t{256} << 10, size_t{16} << 20})
          for (bool copying : {false, true}) std::printf("%9.1f", throughput(type, n, bytes, copying) / 1e9);
        std::printf("\n");
      });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "speed") {
    print_speed();
    return 0;
  }
  return check::run_all(argc, argv);
}
