// The custom call that stands for our ops in functions compiled by XLA, for which TensorFlow's kernels do not
// exist. XLA's registry is C++ and not part of any stable interface: without it, compiled functions are
// refused in Python.
#include <dlfcn.h>

#include <future>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "hvd.h"

namespace hvd::tensorflow {
namespace {

constexpr auto kTarget = "horovod_collective";

// What horovod/tensorflow/xla.py writes: the op's type, numbers, tensors and finally the name.
struct Call {
  std::string op_type, name;
  hvd_request request{};
  std::vector<hvd_tensor> tensors;
  std::vector<std::vector<int64_t>> shapes;

  bool parse(const std::string& text) {
    std::istringstream in(text);
    request.struct_size = sizeof request;
    in >> op_type >> request.kind >> request.process_set >> request.reduce_op >> request.root_rank;
    in >> request.prescale >> request.postscale >> request.tensor_count;
    if (!in || request.tensor_count < 1) return false;
    shapes.resize(static_cast<size_t>(request.tensor_count));
    tensors.resize(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      in >> tensors[i].dtype >> tensors[i].ndim;
      if (!in || tensors[i].ndim < 0) return false;
      shapes[i].resize(static_cast<size_t>(tensors[i].ndim));
      for (int64_t& dimension : shapes[i]) in >> dimension;
      tensors[i].shape = shapes[i].data();
    }
    std::getline(in >> std::ws, name);
    request.name = name.c_str();
    request.tensors = tensors.data();
    return !in.fail();
  }
};

struct Result {
  int32_t code = HVD_OK;
  std::string text;
};

// Blocks: XLA has no calls that complete later. Ends with the operation.
Result run(Call& call) {
  std::promise<Result> promise;
  call.request.user = &promise;
  call.request.done = [](void* user, const hvd_outcome* outcome) {
    static_cast<std::promise<Result>*>(user)->set_value({outcome->code, outcome->text});
  };
  // Only empty outputs have no memory, and those are never written.
  call.request.allocate = [](void* user, int32_t, const int64_t*, int32_t) { return user; };
  std::future<Result> result = promise.get_future();
  const hvd_handle handle = hvd_submit_default(&call.request);
  if (handle <= 0) return {static_cast<int32_t>(handle), hvd_last_error()};
  return result.get();
}

using SetFailureFn = void (*)(void* status, const char* text, size_t length);
SetFailureFn set_failure = nullptr;

void fail(void* status, const std::string& text) {
  if (set_failure != nullptr) {
    set_failure(status, text.data(), text.size());
  } else {
    *static_cast<std::optional<std::string>*>(status) = text;
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
    call.tensors[i].output = outputs[i];
  }
  *static_cast<int32_t*>(outputs[count]) = *static_cast<const int32_t*>(in[count]);
  const Result result = run(call);
  if (result.code != HVD_OK) fail(status, call.op_type + ": " + result.text);
}

}  // namespace
}  // namespace hvd::tensorflow

// 1 if compiled functions can call us. To be called once.
extern "C" HVD_API int horovod_tf_register_xla(void) {
  using namespace hvd::tensorflow;
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) library = RTLD_DEFAULT;
  auto registry = reinterpret_cast<void* (*)()>(dlsym(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
  auto add = reinterpret_cast<void (*)(void*, const std::string&, void*, const std::string&)>(
      dlsym(library,
            "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
            "traitsIcESaIcEEEPvS8_"));
  set_failure = reinterpret_cast<SetFailureFn>(dlsym(library, "XlaCustomCallStatusSetFailure"));
  if (registry == nullptr || add == nullptr) return 0;
  add(registry(), kTarget, reinterpret_cast<void*>(&collective), "Host");
  return 1;
}
