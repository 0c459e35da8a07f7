// Background threads of the engine.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace hvd {

// Signals belong to the application's threads (Ctrl-C must reach the interpreter), so ours block them all.
template <typename Function>
std::thread start_thread(const char* name, Function&& function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Function>(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hvd
