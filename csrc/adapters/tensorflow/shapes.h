// Shape functions: what is known of the outputs while a graph is built.
#pragma once

#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

// Output i looks like input i.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
// Output i looks like input i but for the first dimension, which other ranks decide.
void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status);
// unknown_rows() for the first input, and a vector of received splits.
void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
void scalar(TF_ShapeInferenceContext* context, TF_Status* status);
void no_outputs(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
