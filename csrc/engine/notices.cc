#include "engine/notices.h"

#include <chrono>
#include <utility>

#include "hvd.h"

namespace hvd {

void Notices::push(Notice notice) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
    if (waiting_.size() == kKept) waiting_.pop_front();
    waiting_.push_back(std::move(notice));
  }
  changed_.notify_one();
}

bool Notices::next(double seconds, Notice* notice) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool something = changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                           [this] { return closed_ || !waiting_.empty(); });
  if (!something) return false;
  *notice = Notice{};  // HVD_EVENT_CLOSED
  if (waiting_.empty()) return true;
  *notice = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

void Notices::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool Notices::closed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return closed_;
}

}  // namespace hvd
