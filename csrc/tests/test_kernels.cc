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
#include "tests/check.h"
#include "tests/kernel_data.h"
#include "tests/kernel_reference.h"

using namespace kernel_data;

namespace {

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

TEST(reduce_handles_chunks) {
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

// ---- throughput

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
