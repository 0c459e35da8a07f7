#include "engine/waiters.h"

#include <algorithm>
#include <chrono>

namespace hvd {

int Waiters::wait(Task& task, double seconds, std::unique_lock<std::mutex>* driver) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  tasks_.push_back(&task);
  int code = HVD_OK;
  while (!driver->try_lock()) {
    lock.unlock();
    const double passed = std::chrono::duration<double>(Clock::now() - start).count();
    code = task.wait(std::max(seconds - passed, 0.0));
    lock.lock();
    if (!task.answer_call()) break;
  }
  // Still under the lock under which calls are made, so none is lost that came at the last moment.
  tasks_.erase(std::find(tasks_.begin(), tasks_.end(), &task));
  return code;
}

bool Waiters::call_one() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Task* task : tasks_)
    if (task->call()) return true;
  return false;
}

}  // namespace hvd
