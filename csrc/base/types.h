// Element types and reductions, shared by the engine, the communicators and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hvd.h"

namespace hvd {

enum class DataType : uint8_t {
  kUint8 = HVD_UINT8,
  kInt8 = HVD_INT8,
  kUint16 = HVD_UINT16,
  kInt16 = HVD_INT16,
  kInt32 = HVD_INT32,
  kInt64 = HVD_INT64,
  kFloat16 = HVD_FLOAT16,
  kBfloat16 = HVD_BFLOAT16,
  kFloat32 = HVD_FLOAT32,
  kFloat64 = HVD_FLOAT64,
  kBool = HVD_BOOL,
  kComplex64 = HVD_COMPLEX64,
  kComplex128 = HVD_COMPLEX128,
};
constexpr int kDataTypes = 13;

enum class ReduceOp : uint8_t {
  kAverage = HVD_AVERAGE,
  kSum = HVD_SUM,
  kAdasum = HVD_ADASUM,
  kMin = HVD_MIN,
  kMax = HVD_MAX,
  kProduct = HVD_PRODUCT,
};

constexpr size_t size_of(DataType type) {
  constexpr size_t sizes[kDataTypes] = {1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1, 8, 16};
  return sizes[static_cast<int>(type)];
}

constexpr const char* name_of(DataType type) {
  constexpr const char* names[kDataTypes] = {"uint8", "int8",      "uint16",    "int16",   "int32",
                                             "int64", "float16",   "bfloat16",  "float32", "float64",
                                             "bool",  "complex64", "complex128"};
  return names[static_cast<int>(type)];
}

constexpr bool is_floating(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}
constexpr bool is_complex(DataType type) {
  return type == DataType::kComplex64 || type == DataType::kComplex128;
}
constexpr bool is_integer(DataType type) {
  return !is_floating(type) && !is_complex(type) && type != DataType::kBool;
}

// Combine the ranks' values in rank order with `op` (kSum, kMin, kMax, kProduct), then multiply by `factor`.
// `factor` on integers multiplies in double and truncates toward zero. Bool: Sum and Max are "or", Min and
// Product are "and"; no factor. What becomes of Average is the engine's affair.
struct Reduction {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
};

}  // namespace hvd
