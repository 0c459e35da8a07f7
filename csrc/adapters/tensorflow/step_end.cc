#include "adapters/tensorflow/step_end.h"

#include "adapters/tensorflow/owned.h"
#include "hvd.h"

namespace hvd::tensorflow {

void* create_step_end(TF_OpKernelConstruction* construction) {
  TfStatus status;
  int64_t kind = 0;
  api().TF_OpKernelConstruction_GetAttrInt64(construction, "kind", &kind, status.get());
  if (!status.ok()) api().TF_OpKernelConstruction_Failure(construction, status.get());
  return new int64_t(kind);
}

void delete_step_end(void* kernel) { delete static_cast<int64_t*>(kernel); }

void compute_step_end(void* kernel, TF_OpKernelContext*) {
  hvd_end_step_default(*static_cast<int64_t*>(kernel));
}

}  // namespace hvd::tensorflow
