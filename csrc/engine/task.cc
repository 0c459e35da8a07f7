#include "engine/task.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "engine/agreement.h"

namespace hvd {

namespace {
thread_local bool calls_back = false;
}

bool Task::in_callback() { return calls_back; }

// aligned_alloc() of glibc before 2.38 can't use again what it returned before: the heap grew by dozens of
// outputs. So the block begins at a line within one of malloc(), whose start stands before it.
Memory allocate_memory(size_t bytes) {
  constexpr size_t kLine = 64;
  void* start = std::malloc(bytes + kLine + sizeof(void*));
  if (start == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  auto* block = reinterpret_cast<void**>((address + sizeof(void*) + kLine - 1) / kLine * kLine);
  block[-1] = start;
  return Memory(block);
}

void FreeMemory::operator()(void* block) const { std::free(static_cast<void**>(block)[-1]); }

Task::Task(const hvd_request& submitted)
    : callback_(submitted.done), allocate_(submitted.allocate), user_(submitted.user) {
  request.kind = submitted.kind;
  request.process_set = submitted.process_set;
  request.root_rank = submitted.root_rank;
  request.op = static_cast<ReduceOp>(submitted.reduce_op);
  request.prescale = submitted.prescale;
  request.postscale = submitted.postscale;
  request.name = submitted.name;
  if (submitted.numbers != nullptr)
    request.numbers.assign(submitted.numbers, submitted.numbers + submitted.number_count);
  auto count = static_cast<size_t>(submitted.tensor_count);
  request.tensors.resize(count);
  tensors.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const hvd_tensor& tensor = submitted.tensors[i];
    request.tensors[i].type = static_cast<DataType>(tensor.dtype);
    request.tensors[i].shape.assign(tensor.shape, tensor.shape + tensor.ndim);
    tensors[i].input = tensor.input;
    tensors[i].output = tensor.output;
    tensors[i].device = tensor.device;
  }
}

Status Task::prepare_output(size_t index, std::vector<int64_t> shape) {
  TaskTensor& tensor = tensors[index];
  tensor.output_shape = std::move(shape);
  if (tensor.output != nullptr) return {};
  if (allocate_ != nullptr) {
    tensor.output = allocate_(user_, static_cast<int32_t>(index), tensor.output_shape.data(),
                              static_cast<int32_t>(tensor.output_shape.size()));
  } else {
    auto elements = static_cast<size_t>(element_count(tensor.output_shape));
    tensor.owned = allocate_memory(elements * size_of(request.tensors[index].type));
    tensor.output = tensor.owned.get();
  }
  if (tensor.output != nullptr) return {};
  return Status::unknown("Out of memory for the output of '" + request.name + "' with shape " +
                         shape_text(tensor.output_shape) + ".");
}

void Task::finish(Status status) {
  status_ = std::move(status);
  if (callback_ != nullptr) {
    const hvd_outcome outcome{status_.code(), status_.text().c_str(), result, received_splits.data(),
                              static_cast<int32_t>(received_splits.size())};
    calls_back = true;
    callback_(user_, &outcome);
    calls_back = false;
  }
  state_.fetch_or(kFinished, std::memory_order_seq_cst);
  wake_waiters();
}

bool Task::call() {
  const uint32_t before = state_.fetch_or(kCalled, std::memory_order_seq_cst);
  if (before == 0) wake_waiters();
  return (before & kFinished) == 0;
}

bool Task::answer_call() {
  return (state_.fetch_and(~kCalled, std::memory_order_seq_cst) & (kCalled | kFinished)) == kCalled;
}

void Task::wake_waiters() {
  if (waiters_.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int Task::wait(double seconds) {
  if (finished()) return HVD_OK;
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(seconds);
  limit.tv_nsec = static_cast<long>((seconds - static_cast<double>(limit.tv_sec)) * 1e9);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  int code = HVD_INTERRUPTED;  // also if it was called or woke for no reason: the caller looks again
  if (syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, 0, &limit, nullptr, 0) != 0 && errno == ETIMEDOUT)
    code = HVD_IN_PROGRESS;
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  return finished() ? HVD_OK : code;
}

}  // namespace hvd
