// One operation submitted on this rank, from hvd_submit() until its handle is released.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/messages.h"

namespace hvd {

struct FreeMemory {
  void operator()(void* block) const;
};

// What allocate_memory() returned.
using Memory = std::unique_ptr<void, FreeMemory>;

// At least one byte, aligned to a cache line; empty if there is none to be had.
Memory allocate_memory(size_t bytes);

struct TaskTensor {
  const void* input = nullptr;
  void* output = nullptr;
  int32_t device = HVD_CPU;  // whose memory both are in
  std::vector<int64_t> output_shape;
  Memory owned;  // the output if the engine had to allocate it
};

class Task {
 public:
  explicit Task(const hvd_request& submitted);

  wire::Request request;
  std::vector<TaskTensor> tensors;
  hvd_handle handle = 0;
  uint32_t sent_as = 0;     // cache id this was announced with
  uint64_t submitted = 0;   // when, by now_ns()
  bool away = false;        // until it runs, this rank comes to no meeting
  bool unattended = false;  // it calls back, and no thread waits for it
  uint32_t recorded = 0;    // the number of its name in records; 0: not known
  bool wait_begun = false;  // the record of its submission says that its thread waits for it
  int64_t result = 0;
  std::vector<int32_t> received_splits;

  // Sets the output's shape and finds memory for it, unless the caller gave some.
  Status prepare_output(size_t index, std::vector<int64_t> shape);

  // Once, on the engine thread (or by the submitter that takes the task back).
  void finish(Status status);
  bool finished() const { return (state_.load(std::memory_order_acquire) & kFinished) != 0; }
  // This thread is in somebody's `done`. It holds up the engine and must not wait for it.
  static bool in_callback();
  bool has_callback() const { return callback_ != nullptr; }
  const Status& status() const { return status_; }  // after finished()
  // HVD_OK when finished, HVD_IN_PROGRESS after `seconds`, HVD_INTERRUPTED on a signal or a call().
  int wait(double seconds);
  // Wakes who waits, now or next, to do something else. False if the task is finished.
  bool call();
  // Was there a call()? It is answered then.
  bool answer_call();

 private:
  static constexpr uint32_t kFinished = 1, kCalled = 2;
  void wake_waiters();

  std::atomic<uint32_t> state_{0};
  std::atomic<uint32_t> waiters_{0};
  Status status_;
  hvd_done_fn callback_;
  hvd_allocate_fn allocate_;
  void* user_;
};

}  // namespace hvd
