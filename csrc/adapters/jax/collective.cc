// The one function that XLA calls for every collective in programs that JAX compiles for CPUs. It blocks
// until the operation is done: XLA runs such calls one after another anyway, and the waiting thread does the
// engine's work.
#include <cstring>
#include <string>
#include <vector>

#include "adapters/jax/xla_ffi.h"
#include "adapters/xla/shapes.h"
#include "hvd.h"
#include "kinds.h"

namespace hvd::jax {
namespace {

using xla::Shape;

// Stands in for the memory of tensors without elements, as NULL would ask the engine to allocate.
char empty_memory;

struct TypePair {
  int32_t ours, theirs;
};
constexpr TypePair kTypes[] = {
    {HVD_BOOL, kPred},       {HVD_INT8, kS8},     {HVD_INT16, kS16},     {HVD_INT32, kS32},
    {HVD_INT64, kS64},       {HVD_UINT8, kU8},    {HVD_UINT16, kU16},    {HVD_FLOAT16, kF16},
    {HVD_FLOAT32, kF32},     {HVD_FLOAT64, kF64}, {HVD_BFLOAT16, kBf16}, {HVD_COMPLEX64, kC64},
    {HVD_COMPLEX128, kC128},
};

// -1 if there is none: refused by the engine; Python has refused it before.
constexpr int32_t engine_type(int32_t type) {
  for (const TypePair& pair : kTypes)
    if (pair.theirs == type) return pair.ours;
  return -1;
}

// One code for all: JAX turns some into other exceptions, and not everywhere alike.
Error* fail(const Api* api, const std::string& text) {
  ErrorArguments arguments{sizeof arguments, nullptr, text.c_str(), kInternal};
  return api->create_error(&arguments);
}

// What horovod/jax/compiled.py says about an operation.
class Description {
 public:
  explicit Description(const Attributes& attributes) : attributes_(attributes) {}

  template <typename T>
  bool read(const char* name, int32_t type, T* value) const {
    const int64_t place = find(name, kScalarAttribute);
    if (place < 0) return false;
    const auto* scalar = static_cast<const Scalar*>(attributes_.items[place]);
    if (scalar->type != type) return false;
    std::memcpy(value, scalar->value, sizeof *value);
    return true;
  }
  bool read(const char* name, int32_t* value) const { return read(name, kS32, value); }
  bool read(const char* name, double* value) const { return read(name, kF64, value); }
  bool read(const char* name, std::string* value) const {
    const int64_t place = find(name, kTextAttribute);
    if (place < 0) return false;
    const auto* text = static_cast<const Text*>(attributes_.items[place]);
    value->assign(text->data, text->length);
    return true;
  }

 private:
  int64_t find(const char* name, int32_t kind) const {
    for (int64_t i = 0; i < attributes_.count; ++i) {
      const Text& found = *attributes_.names[i];
      if (attributes_.kinds[i] == kind && found.length == std::strlen(name) &&
          std::memcmp(found.data, name, found.length) == 0)
        return i;
    }
    return -1;
  }

  const Attributes& attributes_;
};

class Collective {
 public:
  // The last operand and the last result are a number that only keeps the calls of a program in order.
  Collective(const Buffers& operands, const Buffers& results)
      : operands_(operands), results_(results), tensors_(static_cast<size_t>(operands.count - 1)) {}

  bool read(const Description& from) {
    request_.struct_size = sizeof request_;
    from.read("ends_step", &ends_step_);  // programs that were exported by an older version do not say it
    return from.read("kind", &request_.kind) && is_kind(request_.kind) &&
           from.read("reduce_op", &request_.reduce_op) && from.read("root_rank", &request_.root_rank) &&
           from.read("process_set", &request_.process_set) && from.read("prescale", &request_.prescale) &&
           from.read("postscale", &request_.postscale) && from.read("name", &name_) &&
           from.read("unnamed", &request_.unnamed) && from.read("ranks", &ranks_);
  }

  // False: text() says why.
  bool run() {
    if (!compiled_for_these_ranks()) return false;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Buffer& input = *operands_.items[i];
      tensors_[i] = {memory_of(input),        nullptr, input.dims, static_cast<int32_t>(input.rank),
                     engine_type(input.type), HVD_CPU, 0};
      // Left to allocate() where the shape depends on other ranks.
      if (has(request_.kind, kKeepsShape)) tensors_[i].output = memory_of(*results_.items[i]);
    }
    request_.name = name_.c_str();
    request_.tensors = tensors_.data();
    request_.tensor_count = static_cast<int32_t>(tensors_.size());
    request_.user = this;
    request_.allocate = [](void* user, int32_t index, const int64_t* shape, int32_t ndim) {
      return static_cast<Collective*>(user)->allocate(static_cast<size_t>(index), Shape(shape, shape + ndim));
    };
    request_.done = [](void* user, const hvd_outcome* outcome) {
      static_cast<Collective*>(user)->compare_splits(*outcome);
    };
    if (hvd_run_default(&request_) != HVD_OK) {
      problem_ = hvd_last_error();
      return false;
    }
    pass_on_order();
    if (ends_step_ != 0) hvd_end_step_default(ends_step_);
    return problem_.empty();
  }

  std::string text() const { return std::string("Horovod ") + kind_name(request_.kind) + ": " + problem_; }

 private:
  static void* memory_of(const Buffer& buffer) {
    return buffer.data == nullptr ? &empty_memory : buffer.data;
  }

  bool compiled_for_these_ranks() {
    int32_t size = 0, included = 0;
    // Where there is no such set, or no engine, the engine says it best.
    if (ranks_ == 0 || hvd_default_process_set(request_.process_set, &size, &included) != HVD_OK) return true;
    if (size == ranks_) return true;
    problem_ = "compiled for " + std::to_string(ranks_) + " ranks, but there are " + std::to_string(size) +
               "; call lower() and compile() again after hvd.init().";
    return false;
  }

  // The results' shapes were fixed when the program was compiled. If the ranks' tensors do not make them, the
  // operation still runs, so that no other rank waits; what does not fit goes to memory of our own.
  void* allocate(size_t index, const Shape& shape) {
    const Buffer& result = *results_.items[index];
    const Shape expected(result.dims, result.dims + result.rank);
    if (shape == expected) return memory_of(result);
    say_rows_differ(xla::other_shape(expected, shape));
    return spare_.of(shape);
  }

  void compare_splits(const hvd_outcome& outcome) {
    for (int32_t i = 1; i < outcome.split_count; ++i)
      if (outcome.received_splits[i] != outcome.received_splits[0])
        say_rows_differ("the ranks send different numbers of rows");
  }

  void say_rows_differ(const std::string& how) {
    problem_ = "'" + name_ + "': " + how +
               ". Within jax.jit every rank must give the same number of rows: call it outside of jit.";
  }

  void pass_on_order() {
    const Buffer &before = *operands_.items[tensors_.size()], &after = *results_.items[tensors_.size()];
    size_t bytes = sizeof(int32_t);  // one number, or several under vmap
    for (int64_t i = 0; i < before.rank; ++i) bytes *= static_cast<size_t>(before.dims[i]);
    if (before.data != after.data) std::memcpy(after.data, before.data, bytes);
  }

  const Buffers& operands_;
  const Buffers& results_;
  hvd_request request_{};
  int32_t ranks_ = 0;  // how many there were when it was compiled, where results depend on it, otherwise 0
  int32_t ends_step_ = 0;  // not 0: the kind of step that ends with this
  std::string name_, problem_;
  std::vector<hvd_tensor> tensors_;
  xla::SpareMemory spare_;
};

// XLA asks once which version we speak: any of this major version, as we use nothing that has ever changed.
bool answer_metadata(const CallFrame& frame) {
  if (frame.extensions == nullptr || frame.extensions->type != kMetadataExtension) return false;
  Metadata& metadata = *reinterpret_cast<MetadataExtension*>(frame.extensions)->metadata;
  metadata.version.major = kMajorVersion;
  metadata.version.minor = frame.api == nullptr ? 1 : frame.api->version.minor;
  metadata.traits = 0;
  return true;
}

}  // namespace
}  // namespace hvd::jax

extern "C" HVD_API hvd::jax::Error* hvd_jax_collective(hvd::jax::CallFrame* frame) {
  using namespace hvd::jax;
  if (answer_metadata(*frame)) return nullptr;
  const Api* api = frame->api;
  if (frame->struct_size < sizeof(CallFrame) || api->struct_size < sizeof(Api) ||
      api->version.major != kMajorVersion)
    return fail(api, "Horovod does not know this version of XLA's foreign-function interface.");
  const Buffers &operands = frame->operands, &results = frame->results;
  if (operands.count < 1 || operands.count != results.count)
    return fail(api, "Horovod: a collective must have as many results as operands.");
  Collective collective(operands, results);
  if (!collective.read(Description(frame->attributes)))
    return fail(api, "Horovod: unreadable description of a collective.");
  return collective.run() ? nullptr : fail(api, collective.text());
}
