// Telling TensorFlow that an asynchronous kernel is done, from any thread and at any time.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "adapters/libstdcxx.h"
#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

// Finds out where TensorFlow's code is. To be called once, before the first Completion.
void find_tensorflow_code();

// TensorFlow hands its kernels a pointer to a std::function on the caller's stack, gone when the kernel
// function returns. It is copied if it looks as expected; if it does not (another standard library), the
// kernel function waits for the end of the operation instead: then only as many operations are in flight as
// TensorFlow has threads.
class Completion {
 public:
  explicit Completion(TF_AsyncOpKernelDoneCallback* callback);
  // Once. The kernel's context must not be used afterwards.
  void signal();
  // What the kernel function does last, and not the owner of this object, which may be gone by then.
  std::function<void()> rest() const;

 private:
  std::optional<libstdcxx::Function> copy_;
  TF_AsyncOpKernelDoneCallback* callback_;
  std::shared_ptr<std::promise<void>> done_;  // only if it could not be copied
};

}  // namespace hvd::tensorflow
