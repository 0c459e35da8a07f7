// The op that says that a step of the training ends, in graphs, where nobody but an op can.
#pragma once

#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

void* create_step_end(TF_OpKernelConstruction* construction);
void delete_step_end(void* kernel);
void compute_step_end(void* kernel, TF_OpKernelContext* context);

}  // namespace hvd::tensorflow
