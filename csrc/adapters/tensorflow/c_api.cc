#include "adapters/tensorflow/c_api.h"

#include <dlfcn.h>

namespace hvd::tensorflow {
namespace {

// In a function: our constructor function may run before this file's static objects are constructed.
Api& table() {
  static Api instance;
  return instance;
}

}  // namespace

const char* load_api() {
  // TensorFlow is loaded already (it loads us), perhaps without its symbols being global.
  void* library = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) library = RTLD_DEFAULT;
  Api& functions = table();
#define HVD_TF_LOAD(result, name, arguments)                                     \
  functions.name = reinterpret_cast<result(*) arguments>(dlsym(library, #name)); \
  if (functions.name == nullptr) return #name;
  HVD_TF_FUNCTIONS(HVD_TF_LOAD)
#undef HVD_TF_LOAD
  return nullptr;
}

const Api& api() { return table(); }

}  // namespace hvd::tensorflow
