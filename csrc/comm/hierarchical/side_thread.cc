#include "comm/hierarchical/side_thread.h"

#include <utility>

#include "base/thread.h"

namespace hvd {

SideThread::~SideThread() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::start(std::function<Status()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
    outcome_ = {};
  }
  if (!thread_.joinable()) thread_ = start_thread("hvd-network", [this] { loop(); });
  changed_.notify_all();
}

Status SideThread::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  return std::exchange(outcome_, {});
}

void SideThread::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || work_; });
    if (!work_) return;
    lock.unlock();
    Status outcome = work_();  // nobody replaces it while it is there
    lock.lock();
    outcome_ = std::move(outcome);
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace hvd
