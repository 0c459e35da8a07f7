// What tests of the kernels have in common: the instruction sets, and arrays of odd values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/kernel_reference.h"

namespace kernel_data {

using namespace hvd;
using namespace kernel_reference;

constexpr DataType kAll[] = {
    DataType::kUint8, DataType::kInt8,      DataType::kUint16,    DataType::kInt16,   DataType::kInt32,
    DataType::kInt64, DataType::kFloat16,   DataType::kBfloat16,  DataType::kFloat32, DataType::kFloat64,
    DataType::kBool,  DataType::kComplex64, DataType::kComplex128};
constexpr DataType kFloating[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                                  DataType::kFloat64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

inline std::vector<const char*> available() {
  std::vector<const char*> names;
  const char* before = kernels::instruction_set();
  for (const char* name : {"generic", "avx2", "avx512"})
    if (kernels::use_instruction_set(name)) names.push_back(name);
  CHECK(kernels::use_instruction_set(before));
  return names;
}

template <class Body>
inline void with_each_set(Body body) {
  const char* before = kernels::instruction_set();
  for (const char* name : available()) {
    CHECK(kernels::use_instruction_set(name));
    body(name);
  }
  CHECK(kernels::use_instruction_set(before));
}

inline std::mt19937_64 random_bits(7);

template <class F>
inline F odd_float() {
  constexpr F specials[] = {F(0.0), -F(0.0), F(INFINITY), -F(INFINITY), F(NAN), F(1.0), F(-1.0)};
  const uint64_t draw = random_bits();
  if (draw % 8 == 0) return specials[draw / 8 % 7];
  if (draw % 8 == 1) return std::numeric_limits<F>::denorm_min() * static_cast<F>(draw / 8 % 1000);
  return static_cast<F>(
      std::ldexp(static_cast<double>(static_cast<int64_t>(draw)), static_cast<int>(draw % 37) - 80));
}

template <class T>
inline T odd_value() {
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

}  // namespace kernel_data
