// Where the threads of this process are, on demand. Python is asked first; if it does not answer, because
// something holds its lock, a signal whose handler writes the stacks to a pipe; if that gives nothing, the
// kernel tells what state each thread is in.
#pragma once

#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/notices.h"

namespace hvd {

class Stacks {
 public:
  using Answer = std::function<void(uint32_t number, int how, const std::string& text)>;

  // `answer` is called on a thread of this object, or by ask() if there is no thread to be had.
  Stacks(Notices* notices, Answer answer) : notices_(notices), answer_(std::move(answer)) {}
  ~Stacks() { stop(); }

  void ask(uint32_t number, const std::string& reason);
  // What Python says.
  void answered(uint32_t number, const std::string& text);
  // The handler that `signal` has now writes to the other end of `pipe`. -1: there is none any more.
  void use_signal(int signal, int pipe);
  void stop();

 private:
  struct Asked {
    uint32_t number;
    std::string reason;
  };
  void run();
  void find(const Asked& asked);
  bool send_signal(int* pipe);
  std::string by_signal();

  Notices* notices_;
  const Answer answer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<Asked> asked_;
  uint32_t answered_number_ = 0;
  std::string answered_text_;
  int signal_ = -1, pipe_ = -1;
  sighandler_t handler_ = SIG_DFL;  // that of signal_ when it was told
  std::thread thread_;              // from the first question on
};

// What faulthandler has written, with a line for each thread, the main one first, as Python tells it:
// "MainThread: train.py:7 load <- train.py:20 <module>". Without the thread that observes.
std::string folded_stacks(const std::string& text);

// What the kernel says about each thread of this process.
std::string thread_states();

}  // namespace hvd
