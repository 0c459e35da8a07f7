// Background threads of the engine.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

#include "base/not_copied.h"
#include "base/turns.h"

namespace hvd {

// What threads that are started meanwhile inherit. Signals belong to the application's threads (Ctrl-C must
// reach the interpreter), so ours block them, but not those by which a thread itself goes wrong: if they are
// blocked, the process ends without a word from the handlers that tell where it happened.
class SignalsBlocked : NotCopied {
 public:
  SignalsBlocked() {
    sigset_t others;
    sigfillset(&others);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) sigdelset(&others, own);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

template <typename Function>
std::thread start_thread(const char* name, Function&& function) {
  SignalsBlocked blocked;  // also until an exception has left: there may be no thread to be had
  std::thread thread([function = std::forward<Function>(function)]() mutable {
    take_short_turns();
    function();
  });
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hvd
