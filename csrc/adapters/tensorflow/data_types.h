// TensorFlow's element types as the engine's.
#pragma once

#include "adapters/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tensorflow {

// -1 if the engine does not know it; the ops' type constraints let none of those through. Ops that only move
// elements take more types than the engine: those travel as others of the same size.
constexpr int32_t engine_type(TF_DataType type) {
  switch (type) {
    case TF_UINT8:
      return HVD_UINT8;
    case TF_INT8:
      return HVD_INT8;
    case TF_UINT16:
      return HVD_UINT16;
    case TF_INT16:
      return HVD_INT16;
    case TF_INT32:
    case TF_UINT32:
      return HVD_INT32;
    case TF_INT64:
    case TF_UINT64:
      return HVD_INT64;
    case TF_HALF:
      return HVD_FLOAT16;
    case TF_BFLOAT16:
      return HVD_BFLOAT16;
    case TF_FLOAT:
      return HVD_FLOAT32;
    case TF_DOUBLE:
      return HVD_FLOAT64;
    case TF_BOOL:
      return HVD_BOOL;
    case TF_COMPLEX64:
      return HVD_COMPLEX64;
    case TF_COMPLEX128:
      return HVD_COMPLEX128;
    default:
      return -1;
  }
}

// Bytes of an element, 0 if unknown.
constexpr size_t element_size(TF_DataType type) {
  switch (type) {
    case TF_UINT8:
    case TF_INT8:
    case TF_BOOL:
      return 1;
    case TF_UINT16:
    case TF_INT16:
    case TF_HALF:
    case TF_BFLOAT16:
      return 2;
    case TF_INT32:
    case TF_UINT32:
    case TF_FLOAT:
      return 4;
    case TF_INT64:
    case TF_UINT64:
    case TF_DOUBLE:
    case TF_COMPLEX64:
      return 8;
    case TF_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

}  // namespace hvd::tensorflow
