// Ops that answer questions about this process at run time, so that a graph stays right when the world
// changes.
#pragma once

#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

void* create_set_query(TF_OpKernelConstruction* construction);  // reads process_set_id
void* create_query(TF_OpKernelConstruction* construction);
void delete_query(void* kernel);

void compute_size(void* kernel, TF_OpKernelContext* context);
void compute_included(void* kernel, TF_OpKernelContext* context);
void compute_rank(void* kernel, TF_OpKernelContext* context);
void compute_local_rank(void* kernel, TF_OpKernelContext* context);
void compute_local_size(void* kernel, TF_OpKernelContext* context);

}  // namespace hvd::tensorflow
