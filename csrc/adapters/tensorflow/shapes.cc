#include "adapters/tensorflow/shapes.h"

#include "adapters/tensorflow/owned.h"

namespace hvd::tensorflow {
namespace {

constexpr auto kUnknown = static_cast<size_t>(-1);

bool failed(TF_Status* status) { return api().TF_GetCode(status) != TF_OK; }

void unknown_rows_at(TF_ShapeInferenceContext* context, int index, TF_Status* status) {
  Shape input(api().TF_NewShapeHandle());
  api().TF_ShapeInferenceContextGetInput(context, index, input.get(), status);
  if (failed(status)) return;
  if (!api().TF_ShapeInferenceContextRankKnown(context, input.get()))
    return api().TF_ShapeInferenceContextSetOutput(context, index, input.get(), status);
  const int64_t rank = api().TF_ShapeInferenceContextRank(context, input.get());
  Shape rows(api().TF_ShapeInferenceContextVectorFromSize(context, kUnknown));
  if (rank == 0)  // refused at run time, by all ranks together
    return api().TF_ShapeInferenceContextSetOutput(context, index, rows.get(), status);
  Shape rest(api().TF_NewShapeHandle());
  Shape output(api().TF_NewShapeHandle());
  api().TF_ShapeInferenceContextSubshape(context, input.get(), 1, rank, rest.get(), status);
  if (failed(status)) return;
  api().TF_ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), output.get(), status);
  if (failed(status)) return;
  api().TF_ShapeInferenceContextSetOutput(context, index, output.get(), status);
}

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(api().TF_ShapeInferenceContextNumInputs(context));
  Shape shape(api().TF_NewShapeHandle());
  for (int i = 0; i < count && !failed(status); ++i) {
    api().TF_ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (!failed(status)) api().TF_ShapeInferenceContextSetOutput(context, i, shape.get(), status);
  }
}

void unknown_rows(TF_ShapeInferenceContext* context, TF_Status* status) {
  const auto count = static_cast<int>(api().TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && !failed(status); ++i) unknown_rows_at(context, i, status);
}

void alltoall_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  unknown_rows_at(context, 0, status);
  Shape splits(api().TF_ShapeInferenceContextVectorFromSize(context, kUnknown));
  if (!failed(status)) api().TF_ShapeInferenceContextSetOutput(context, 1, splits.get(), status);
}

void scalar(TF_ShapeInferenceContext* context, TF_Status* status) {
  Shape shape(api().TF_ShapeInferenceContextScalar(context));
  api().TF_ShapeInferenceContextSetOutput(context, 0, shape.get(), status);
}

void no_outputs(TF_ShapeInferenceContext*, TF_Status*) {}

}  // namespace hvd::tensorflow
