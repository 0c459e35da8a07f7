#include "adapters/tensorflow/collective.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "adapters/tensorflow/completion.h"
#include "adapters/tensorflow/data_types.h"
#include "adapters/tensorflow/errors.h"
#include "adapters/tensorflow/owned.h"
#include "hvd.h"
#include "kinds.h"

namespace hvd::tensorflow {
namespace {

// For how long a thread of TensorFlow's stays with an operation: longer than ranks that do the same are
// apart and memory takes for a large gradient. But it may be the only thread and have something to do, which
// another rank may even wait for; over a network that would take too long.
constexpr double kStay = 0.005;

// Stands in for the memory of tensors without elements, as NULL would ask the engine to allocate.
char empty_memory;

std::vector<int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(api().TF_NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = api().TF_Dim(tensor, static_cast<int>(i));
  return shape;
}

void* memory_of(const TF_Tensor* tensor) {
  void* memory = api().TF_TensorData(tensor);
  return memory == nullptr ? &empty_memory : memory;
}

class Collective {
 public:
  Collective(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
      : attributes_(attributes), context_(context), completion_(done) {}

  std::function<void()> rest() const { return completion_.rest(); }

  // Takes over: `self` is deleted when the operation is done, which may be before this returns. The handle,
  // or 0 if it has failed.
  static hvd_handle start(std::unique_ptr<Collective> self, bool attended) {
    if (!self->gather_inputs()) {
      self->complete();
      return 0;
    }
    const auto& attributes = self->attributes_;
    std::vector<hvd_tensor> tensors = self->describe();
    hvd_request request{};
    request.struct_size = sizeof request;
    request.kind = attributes.kind;
    request.name = attributes.name.c_str();
    request.process_set = attributes.process_set;
    request.reduce_op = attributes.reduce_op;
    request.root_rank = attributes.root_rank;
    request.tensor_count = static_cast<int32_t>(tensors.size());
    request.tensors = tensors.data();
    request.prescale = attributes.prescale;
    request.postscale = attributes.postscale;
    request.numbers = self->splits_.empty() ? nullptr : self->splits_.data();
    request.number_count = static_cast<int32_t>(self->splits_.size());
    request.attended = attended ? 1 : 0;
    request.done = [](void* user, const hvd_outcome* outcome) {
      std::unique_ptr<Collective>(static_cast<Collective*>(user))->finish(*outcome);
    };
    request.allocate = [](void* user, int32_t index, const int64_t* shape, int32_t ndim) {
      return static_cast<Collective*>(user)->allocate(index, shape, ndim);
    };
    // From here on it is the engine's, unless it refuses.
    Collective* raw = self.release();
    request.user = raw;
    const hvd_handle handle = hvd_submit_default(&request);
    if (handle > 0) return handle;
    self.reset(raw);
    self->refuse(static_cast<int32_t>(handle), hvd_last_error());
    self->complete();
    return 0;
  }

 private:
  struct Item {
    Tensor input;   // empty if the output is the input's memory
    Tensor output;  // empty until its shape is known
    std::vector<int64_t> shape;
    TF_DataType type = 0;
  };

  bool same_shape() const { return has(attributes_.kind, kKeepsShape); }
  bool has_splits() const { return has(attributes_.kind, kHasSplits); }
  bool has_tensors() const { return has(attributes_.kind, kHasTensors); }

  void refuse(int32_t code, const std::string& text) { fail(context_, attributes_.op_type, code, text); }

  Tensor input(int index) {
    TfStatus status;
    TF_Tensor* tensor = nullptr;
    api().TF_GetInput(context_, index, &tensor, status.get());
    if (status.ok()) return Tensor(tensor);
    api().TF_OpKernelContext_Failure(context_, status.get());
    return nullptr;
  }

  bool gather_inputs() {
    if (!has_tensors()) return true;
    const int inputs = api().TF_NumInputs(context_);
    const int count = has_splits() ? 1 : inputs;
    items_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      if (!prepare(i)) return false;
    return !has_splits() || attributes_.even_splits || read_splits();
  }

  bool prepare(int index) {
    Item& item = items_[static_cast<size_t>(index)];
    item.input = input(index);
    if (!item.input) return false;
    item.shape = shape_of(item.input.get());
    item.type = api().TF_TensorType(item.input.get());
    if (!same_shape()) return true;
    const void* memory = api().TF_TensorData(item.input.get());
    // A reference of our own would keep TensorFlow from letting us work in the input's memory.
    item.input.reset();
    TfStatus status;
    int forwarded = -1;
    item.output.reset(api().TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, item.shape.data(),
                                                            static_cast<int>(item.shape.size()), &forwarded,
                                                            status.get()));
    if (!status.ok()) {
      api().TF_OpKernelContext_Failure(context_, status.get());
      return false;
    }
    if (forwarded >= 0 && api().TF_TensorData(item.output.get()) == memory) return true;
    item.input = input(index);
    return item.input != nullptr;
  }

  bool read_splits() {
    Tensor splits = input(1);
    if (!splits) return false;
    const std::vector<int64_t> shape = shape_of(splits.get());
    if (shape.size() != 1 || shape[0] == 0) {
      refuse(HVD_INVALID_ARGUMENT, "splits must be a vector with one entry per rank.");
      return false;
    }
    const auto* values = static_cast<const int32_t*>(api().TF_TensorData(splits.get()));
    splits_.assign(values, values + shape[0]);
    return true;
  }

  std::vector<hvd_tensor> describe() const {
    std::vector<hvd_tensor> tensors;
    tensors.reserve(items_.size());
    for (const Item& item : items_) {
      hvd_tensor tensor{};
      tensor.output = item.output ? memory_of(item.output.get()) : nullptr;
      tensor.input = item.input ? memory_of(item.input.get()) : tensor.output;
      tensor.shape = item.shape.data();
      tensor.ndim = static_cast<int32_t>(item.shape.size());
      tensor.dtype = facts_of(item.type).engine_type;
      tensors.push_back(tensor);
    }
    return tensors;
  }

  Tensor new_output(int index, TF_DataType type, const int64_t* shape, int ndim) {
    size_t bytes = facts_of(type).bytes;
    for (int i = 0; i < ndim; ++i) bytes *= static_cast<size_t>(shape[i]);
    TfStatus status;
    Tensor output(api().TF_AllocateOutput(context_, index, type, shape, ndim, bytes, status.get()));
    if (status.ok()) return output;
    api().TF_OpKernelContext_Failure(context_, status.get());
    return nullptr;
  }

  // On the engine's thread.
  void* allocate(int32_t index, const int64_t* shape, int32_t ndim) {
    Item& item = items_[static_cast<size_t>(index)];
    item.output = new_output(index, item.type, shape, ndim);
    return item.output ? memory_of(item.output.get()) : nullptr;
  }

  void finish(const hvd_outcome& outcome) {
    if (outcome.code != HVD_OK) {
      refuse(outcome.code, outcome.text);
    } else if (has_splits()) {
      write_numbers(1, outcome.received_splits, outcome.split_count, 1);
    } else if (has(attributes_.kind, kHasResult)) {
      const auto result = static_cast<int32_t>(outcome.result);
      write_numbers(0, &result, 1, 0);
    }
    complete();
  }

  void write_numbers(int index, const int32_t* numbers, int64_t count, int ndim) {
    Tensor output = new_output(index, TF_INT32, &count, ndim);
    if (output) std::copy_n(numbers, count, static_cast<int32_t*>(memory_of(output.get())));
  }

  void complete() {
    items_.clear();  // before TensorFlow goes on, so that the next kernel may work in this memory
    completion_.signal();
  }

  const Attributes& attributes_;  // of the kernel, which TensorFlow keeps until we are done
  TF_OpKernelContext* context_;
  Completion completion_;
  std::vector<Item> items_;
  std::vector<int32_t> splits_;
};

}  // namespace

void run_collective(const Attributes& attributes, TF_OpKernelContext* context,
                    TF_AsyncOpKernelDoneCallback* done) {
  auto collective = std::make_unique<Collective>(attributes, context, done);
  const auto rest = collective->rest();
  const auto patience = attributes.patience;  // the attributes may be gone when the operation is done
  const bool stays = patience && patience->stays();
  const hvd_handle handle = Collective::start(std::move(collective), stays);
  if (stays && handle > 0) {
    const auto start = std::chrono::steady_clock::now();
    const bool over = hvd_help_default(handle, kStay) == HVD_OK;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    patience->learn(over && passed.count() < kStay);
  }
  rest();
}

}  // namespace hvd::tensorflow
