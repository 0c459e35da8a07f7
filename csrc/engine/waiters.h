// Application threads that wait for their operations while another thread drives the engine. Who stops
// driving calls one of them to go on at once: the background threads keep away (idle_backoff.h) and would
// come late.
#pragma once

#include <mutex>
#include <vector>

#include "engine/task.h"

namespace hvd {

class Waiters {
 public:
  // As Task::wait(), but ends also when this thread is to drive: then it holds `driver`.
  int wait(Task& task, double seconds, std::unique_lock<std::mutex>* driver);
  // To be called by every thread that has driven, after letting go of the lock. Whether somebody will drive.
  bool call_one();

 private:
  // A lock, though it is taken after every operation: a thread that comes is seen by the one that leaves, or
  // sees that it has left.
  std::mutex mutex_;
  std::vector<Task*> tasks_;  // in the order they came
};

}  // namespace hvd
