#include "adapters/tensorflow/completion.h"

#include <link.h>

#include <cstring>
#include <vector>

namespace hvd::tensorflow {
namespace {

struct Range {
  uintptr_t begin, end;
};

std::vector<Range>& tensorflow_code() {
  static auto* ranges = new std::vector<Range>;
  return *ranges;
}

bool in_tensorflow(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const Range& range : tensorflow_code())
    if (address >= range.begin && address < range.end) return true;
  return false;
}

bool is_std_function(const TF_AsyncOpKernelDoneCallback* callback) {
  const auto code = libstdcxx::Function::code_of(callback);
  return in_tensorflow(code.manage) && in_tensorflow(code.call);
}

}  // namespace

void find_tensorflow_code() {
  // dladdr() would search the millions of symbols of TensorFlow at each call, a millisecond each time.
  auto visit = [](dl_phdr_info* module, size_t, void*) {
    if (std::strstr(module->dlpi_name, "tensorflow") == nullptr) return 0;
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const auto& segment = module->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
      const uintptr_t begin = module->dlpi_addr + segment.p_vaddr;
      tensorflow_code().push_back({begin, begin + segment.p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(visit, nullptr);
}

Completion::Completion(TF_AsyncOpKernelDoneCallback* callback) : callback_(callback) {
  if (is_std_function(callback)) {
    copy_.emplace(callback);
  } else {
    done_ = std::make_shared<std::promise<void>>();
  }
}

void Completion::signal() {
  if (done_) {
    done_->set_value();
  } else {
    (*copy_)();
  }
}

std::function<void()> Completion::rest() const {
  if (!done_) return [] {};
  // Ends with the operation, which ends at the latest when a peer is given up.
  return [done = done_, callback = callback_] {
    done->get_future().wait();
    api().TF_RunAsyncOpKernelDoneCallback(callback);
  };
}

}  // namespace hvd::tensorflow
