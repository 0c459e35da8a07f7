// TensorFlow's element types as the engine's.
#pragma once

#include "adapters/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tensorflow {

struct TypeFacts {
  TF_DataType type;
  int32_t engine_type;
  size_t bytes;  // of an element
};
// Ops that only move elements take more types than the engine: those travel as others of the same size.
constexpr TypeFacts kTypes[] = {
    {TF_UINT8, HVD_UINT8, 1},       {TF_INT8, HVD_INT8, 1},           {TF_BOOL, HVD_BOOL, 1},
    {TF_UINT16, HVD_UINT16, 2},     {TF_INT16, HVD_INT16, 2},         {TF_HALF, HVD_FLOAT16, 2},
    {TF_BFLOAT16, HVD_BFLOAT16, 2}, {TF_INT32, HVD_INT32, 4},         {TF_UINT32, HVD_INT32, 4},
    {TF_FLOAT, HVD_FLOAT32, 4},     {TF_INT64, HVD_INT64, 8},         {TF_UINT64, HVD_INT64, 8},
    {TF_DOUBLE, HVD_FLOAT64, 8},    {TF_COMPLEX64, HVD_COMPLEX64, 8}, {TF_COMPLEX128, HVD_COMPLEX128, 16},
};

// The engine does not know others; the ops' type constraints let none of those through.
constexpr TypeFacts facts_of(TF_DataType type) {
  for (const TypeFacts& facts : kTypes)
    if (facts.type == type) return facts;
  return {type, -1, 0};
}

}  // namespace hvd::tensorflow
