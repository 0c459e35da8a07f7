// The engine's errors as TensorFlow's.
#pragma once

#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/owned.h"
#include "hvd.h"

namespace hvd::tensorflow {

constexpr TF_Code tensorflow_code_of(int32_t code) {
  switch (code) {
    case HVD_INVALID_ARGUMENT:
      return TF_INVALID_ARGUMENT;
    case HVD_FAILED_PRECONDITION:
      return TF_FAILED_PRECONDITION;
    case HVD_ABORTED:
      return TF_ABORTED;
    default:
      return TF_UNKNOWN;
  }
}

// Elastic training recognises a lost peer by the name of the op's type, so it is in every text.
inline void fail(TF_OpKernelContext* context, const char* op_type, int32_t code, const std::string& text) {
  TfStatus status(tensorflow_code_of(code), std::string(op_type) + ": " + text);
  api().TF_OpKernelContext_Failure(context, status.get());
}

}  // namespace hvd::tensorflow
