// A thread that does one thing at a time beside the caller, such as talking to the network while the caller
// works on shared memory. It starts when it is needed first.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/not_copied.h"
#include "base/status.h"

namespace hvd {

class SideThread : NotCopied {
 public:
  SideThread() = default;
  ~SideThread();  // waits for what is under way

  // Starts `work`, which must end by itself when the engine aborts. Not before the former was waited for.
  void start(std::function<Status()> work);
  // The outcome of what was started last; ok if nothing is under way.
  Status wait();

 private:
  void loop();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<Status()> work_;  // empty: nothing to do
  Status outcome_;
  bool over_ = false;
};

}  // namespace hvd
