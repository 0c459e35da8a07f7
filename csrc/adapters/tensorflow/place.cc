#include "adapters/tensorflow/place.h"

#include "adapters/tensorflow/errors.h"
#include "adapters/tensorflow/owned.h"
#include "hvd.h"

namespace hvd::tensorflow {
namespace {

// What HorovodProcessSetIncluded says instead of failing; the numbers are part of the API.
constexpr int32_t kNotInitialized = -1;
constexpr int32_t kUnknownSet = -3;

void answer(TF_OpKernelContext* context, int32_t value) {
  TfStatus status;
  Tensor output(api().TF_AllocateOutput(context, 0, TF_INT32, nullptr, 0, sizeof value, status.get()));
  if (status.ok()) {
    *static_cast<int32_t*>(api().TF_TensorData(output.get())) = value;
  } else {
    api().TF_OpKernelContext_Failure(context, status.get());
  }
}

template <typename Select>
void answer_place(TF_OpKernelContext* context, const char* op_type, Select select) {
  hvd_place place{};
  const int32_t code = hvd_default_place(&place);
  if (code != HVD_OK) return fail(context, op_type, code, hvd_last_error());
  answer(context, select(place));
}

int32_t set_of(const void* kernel) { return *static_cast<const int32_t*>(kernel); }

}  // namespace

void* create_set_query(TF_OpKernelConstruction* construction) {
  TfStatus status;
  int64_t number = 0;
  api().TF_OpKernelConstruction_GetAttrInt64(construction, "process_set_id", &number, status.get());
  if (!status.ok()) api().TF_OpKernelConstruction_Failure(construction, status.get());
  return new int32_t(static_cast<int32_t>(number));
}

void* create_query(TF_OpKernelConstruction*) { return nullptr; }

void delete_query(void* kernel) { delete static_cast<int32_t*>(kernel); }

void compute_size(void* kernel, TF_OpKernelContext* context) {
  int32_t size = 0, included = 0;
  const int32_t code = hvd_default_process_set(set_of(kernel), &size, &included);
  if (code != HVD_OK) return fail(context, "HorovodSize", code, hvd_last_error());
  answer(context, size);
}

void compute_included(void* kernel, TF_OpKernelContext* context) {
  int32_t size = 0, included = 0;
  const int32_t code = hvd_default_process_set(set_of(kernel), &size, &included);
  if (code == HVD_FAILED_PRECONDITION) included = kNotInitialized;
  if (code == HVD_INVALID_ARGUMENT) included = kUnknownSet;
  answer(context, included);
}

void compute_rank(void*, TF_OpKernelContext* context) {
  answer_place(context, "HorovodRank", [](const hvd_place& place) { return place.rank; });
}

void compute_local_rank(void*, TF_OpKernelContext* context) {
  answer_place(context, "HorovodLocalRank", [](const hvd_place& place) { return place.local_rank; });
}

void compute_local_size(void*, TF_OpKernelContext* context) {
  answer_place(context, "HorovodLocalSize", [](const hvd_place& place) { return place.local_size; });
}

}  // namespace hvd::tensorflow
