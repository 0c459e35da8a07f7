// What the core has to tell or to ask its process: Python waits for it on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace hvd {

struct Notice {
  int32_t kind = 0;  // HVD_EVENT_*
  int32_t rank = 0;
  uint32_t number = 0;
  int32_t how = 0;
  std::string text;
};

class Notices {
 public:
  void push(Notice notice);
  // False if none comes within `seconds`. After close(), when all are taken, HVD_EVENT_CLOSED.
  bool next(double seconds, Notice* notice);
  void close();
  bool closed() const;

 private:
  static constexpr size_t kKept = 1000;  // if nobody takes them
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Notice> waiting_;
  bool closed_ = false;
};

}  // namespace hvd
