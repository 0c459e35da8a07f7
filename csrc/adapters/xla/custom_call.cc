// The custom call that stands for our ops in functions compiled by XLA, for which TensorFlow's kernels do not
// exist. XLA's registry is C++ and not part of any stable interface: without it, compiled functions are
// refused in Python.
#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/libstdcxx.h"
#include "adapters/xla/shapes.h"
#include "hvd.h"
#include "kinds.h"

namespace hvd::xla {
namespace {

constexpr auto kTarget = "horovod_collective";
constexpr auto kEndStepTarget = "horovod_end_step";
constexpr size_t kLongestList = 1 << 20;

void read_list(std::istringstream& in, Shape& values) {
  size_t count = 0;
  if (!(in >> count) || count > kLongestList) return in.setstate(std::ios::failbit);
  values.resize(count);
  for (int64_t& value : values) in >> value;
}

// What horovod/tensorflow/xla.py writes: the op's type, numbers, tensors and finally the name.
struct Call {
  std::string op_type, name;
  hvd_request request{};
  std::vector<hvd_tensor> tensors;
  std::vector<Shape> shapes, result_shapes;
  std::vector<int32_t> splits;

  bool parse(const std::string& text) {
    std::istringstream in(text);
    request.struct_size = sizeof request;
    in >> op_type >> request.kind >> request.process_set >> request.reduce_op >> request.root_rank;
    in >> request.prescale >> request.postscale >> request.tensor_count;
    if (!in || !is_kind(request.kind) || request.tensor_count < 1) return false;
    shapes.resize(static_cast<size_t>(request.tensor_count));
    result_shapes.resize(shapes.size());
    tensors.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      in >> tensors[i].dtype;
      read_list(in, shapes[i]);
      read_list(in, result_shapes[i]);
      tensors[i].shape = shapes[i].data();
      tensors[i].ndim = static_cast<int32_t>(shapes[i].size());
    }
    Shape numbers;
    read_list(in, numbers);
    splits.assign(numbers.begin(), numbers.end());
    std::getline(in >> std::ws, name);
    request.name = name.c_str();
    request.tensors = tensors.data();
    request.numbers = splits.empty() ? nullptr : splits.data();
    request.number_count = static_cast<int32_t>(splits.size());
    return !in.fail();
  }
};

// A call that blocks its thread until the operation is done: XLA has none that complete later.
class Run {
 public:
  Run(Call& call, void** outputs) : call_(call), outputs_(outputs) {}

  // The text of the failure, "" if it succeeded.
  std::string operator()() {
    call_.request.user = this;
    call_.request.done = [](void* user, const hvd_outcome* outcome) {
      static_cast<Run*>(user)->finish(*outcome);
    };
    call_.request.allocate = [](void* user, int32_t index, const int64_t* shape, int32_t ndim) {
      return static_cast<Run*>(user)->allocate(static_cast<size_t>(index), Shape(shape, shape + ndim));
    };
    hvd_run_default(&call_.request);
    return failure_ ? *failure_ : hvd_last_error();
  }

 private:
  // The results' shapes were fixed when the function was compiled. If the ranks' tensors do not make them,
  // the operation still runs, so that no other rank waits; what does not fit goes to memory of our own.
  void* allocate(size_t index, const Shape& shape) {
    if (shape == call_.result_shapes[index] && outputs_[index] != nullptr) return outputs_[index];
    if (shape != call_.result_shapes[index]) problem_ = other_shape(call_.result_shapes[index], shape);
    return spare_.of(shape);
  }

  void finish(const hvd_outcome& outcome) {
    for (int32_t i = 1; i < outcome.split_count; ++i)
      if (outcome.received_splits[i] != outcome.received_splits[0])
        problem_ = "the ranks send different numbers of rows";
    if (outcome.code != HVD_OK) {
      failure_ = outcome.text;
    } else if (!problem_.empty()) {
      failure_ =
          problem_ +
          ". With jit_compile=True every rank must give the same number of rows: call it outside of the "
          "compiled function.";
    } else {
      failure_ = "";
    }
  }

  Call& call_;
  void** outputs_;
  SpareMemory spare_;
  std::string problem_;
  std::optional<std::string> failure_;  // not there if the engine refused
};

using SetFailureFn = void (*)(void* status, const char* text, size_t length);
SetFailureFn set_failure = nullptr;

void fail(void* status, const std::string& text) {
  if (set_failure != nullptr) {
    set_failure(status, text.data(), text.size());
  } else {
    static_cast<libstdcxx::OptionalString*>(status)->set(text);
  }
}

// The last operand and the last result are a number that only keeps the calls of a function in order.
void collective(void* out, const void** in, const char* description, size_t length, void* status) {
  Call call;
  if (!call.parse(std::string(description, length)))
    return fail(status, "Horovod: unreadable description of a custom call.");
  void** outputs = static_cast<void**>(out);
  const size_t count = call.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    call.tensors[i].input = in[i];
    // Left to allocate() where the shape depends on other ranks.
    if (has(call.request.kind, kKeepsShape)) call.tensors[i].output = outputs[i];
  }
  *static_cast<int32_t*>(outputs[count]) = *static_cast<const int32_t*>(in[count]);
  const std::string failure = Run(call, outputs)();
  if (!failure.empty()) fail(status, call.op_type + ": " + failure);
}

// A step of the training ends; the description is its kind. The first result only sees to it that there is
// more than one: XLA would give the memory of a single one itself.
void end_step(void* out, const void** in, const char* description, size_t length, void*) {
  void** outputs = static_cast<void**>(out);
  for (int i = 0; i < 2; ++i) *static_cast<int32_t*>(outputs[i]) = *static_cast<const int32_t*>(in[0]);
  hvd_end_step_default(std::atoll(std::string(description, length).c_str()));
}

}  // namespace
}  // namespace hvd::xla

// 1 if compiled functions can call us. To be called once.
extern "C" HVD_API int horovod_tf_register_xla(void) {
  using namespace hvd::xla;
  namespace libstdcxx = hvd::libstdcxx;
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) library = RTLD_DEFAULT;
  auto registry = reinterpret_cast<void* (*)()>(dlsym(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
  using String = libstdcxx::ConstString;
  auto add = reinterpret_cast<void (*)(void*, const String&, void*, const String&)>(
      dlsym(library,
            "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
            "traitsIcESaIcEEEPvS8_"));
  set_failure = reinterpret_cast<SetFailureFn>(dlsym(library, "XlaCustomCallStatusSetFailure"));
  if (registry == nullptr || add == nullptr) return 0;
  add(registry(), String(kTarget), reinterpret_cast<void*>(&collective), String("Host"));
  add(registry(), String(kEndStepTarget), reinterpret_cast<void*>(&end_step), String("Host"));
  return 1;
}
