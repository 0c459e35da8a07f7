// One run of a collective op, from the kernel function to TensorFlow's callback.
#pragma once

#include "adapters/tensorflow/attributes.h"
#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

// Submits the operation and returns; the engine completes it. Inputs are read and outputs written in place,
// in TensorFlow's own memory.
void run_collective(const Attributes& attributes, TF_OpKernelContext* context,
                    TF_AsyncOpKernelDoneCallback* done);

}  // namespace hvd::tensorflow
