// Who listens to the coordinator and runs what it releases, and how long threads sleep meanwhile: the engine
// thread, or an application thread that waits.
#include <poll.h>
#include <sched.h>

#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/processors.h"
#include "engine/engine.h"
#include "engine/idle_backoff.h"
#include "engine/relay.h"

namespace hvd {

void Engine::run() {
  if (affinity_ >= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<size_t>(affinity_), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0)
      log_.warning("Can't pin the engine thread to core " + std::to_string(affinity_) +
                   " (HOROVOD_THREAD_AFFINITY).");
  }
  run_until_finished();
  if (abort_->raised()) fail();
}

// An application thread that waits is the driver. In a row of blocking calls it is to be so each time without
// both waking up, so this thread listens only when no such call has come for a moment.
void Engine::run_until_finished() {
  IdleBackoff backoff(visits_.load());
  while (!finished_ && !abort_->raised()) {
    bool keep_away = backoff.update(visits_.load(), left_alone_.load(std::memory_order_relaxed));
    if (!keep_away) {
      std::unique_lock<std::mutex> driver(driver_mutex_, std::try_to_lock);
      if (driver.owns_lock()) {  // otherwise what comes is the driver's, and need not wake both
        driver.unlock();
        sleep(true, nullptr);
        if (!driver.try_lock()) backoff.woken(false);
      }
      keep_away = !driver.owns_lock();
      backoff.looked(keep_away);
      if (!keep_away) {
        backoff.woken(drive());
        driver.unlock();
        // They drive faster: this thread leaves it to the one that comes, who is as good as here.
        if (waiters_.call_one()) visits_.fetch_add(1);
      }
    }
    const timespec moment = backoff.pause();
    if (keep_away) sleep(false, &moment);
  }
}

// Runs everything that has arrived; whether there was anything. The caller holds driver_mutex_.
bool Engine::drive() {
  bool ran = false;
  try {
    while (!finished_ && !abort_->raised()) {
      const uint8_t* data = nullptr;
      size_t size = 0;
      switch (control_.receive(&data, &size)) {
        case wire::Channel::Received::kFrame:
          handle(data, size);
          ran = true;
          break;
        case wire::Channel::Received::kNothing:
          if (control_.take_bell()) flush_unsent();
          return ran;
        case wire::Channel::Received::kForged:
          abort_->raise(wire::forged("the control connection to rank " + std::to_string(above_)));
          break;
        case wire::Channel::Received::kClosed: {
          if (!abort_->raised_within(kWatchSpeaksFirst)) abort_->raise(lost_above(above_));
        }
      }
    }
  } catch (const std::exception& error) {
    abort_->raise(
        Status::unknown("Rank " + std::to_string(rank_) + " had an internal error: " + error.what() + ".")
            .blame(rank_));
  }
  return ran;
}

// Sends what there was no room for before, and says what to poll for then.
short Engine::flush_unsent(bool listen) {
  std::lock_guard<std::mutex> lock(send_mutex_);
  control_.flush();
  return control_.polled_events(listen);
}

// The engine thread: until something arrives (if it is to `listen`), it is woken, the abort signal is
// raised or the time is up.
void Engine::sleep(bool listen, const timespec* limit) {
  const short wanted = flush_unsent(listen);
  pollfd polled[] = {
      {wanted != 0 ? control_.fd() : -1, wanted, 0}, {wake_.fd(), POLLIN, 0}, {abort_->fd(), POLLIN, 0}};
  const bool sleeps = !listen || control_.begin_sleep();
  const timespec now{};
  const int ready = ppoll(polled, 3, sleeps ? limit : &now, nullptr);
  if (listen) control_.end_sleep(ready > 0 && polled[0].revents != 0);
  if (ready > 0 && polled[1].revents != 0) wake_.clear();
}

// An application thread that drives: until something arrives for it or for the hub. False
// if a signal ended it.
bool Engine::sleep_as_driver(double seconds) {
  const short wanted = flush_unsent(true);
  std::vector<pollfd> polled = {{control_.fd(), wanted, 0}, {abort_->fd(), POLLIN, 0}};
  const size_t own = polled.size();
  bool sleeps = control_.begin_sleep();
  if (hub_) sleeps &= hub_->begin_sleep(&polled);
  timespec limit{};
  if (sleeps) {
    limit.tv_sec = static_cast<time_t>(seconds);
    limit.tv_nsec = static_cast<long>((seconds - static_cast<double>(limit.tv_sec)) * 1e9);
  }
  const int ready = ppoll(polled.data(), polled.size(), &limit, nullptr);
  control_.end_sleep(ready > 0 && polled[0].revents != 0);
  if (hub_) hub_->end_sleep(polled.data() + own);
  return ready >= 0;
}

int Engine::wait(Task& task, double seconds) {
  const bool begun = std::exchange(task.wait_begun, false);
  if (task.finished() && !begun) return HVD_OK;
  const bool recorded = begun || recorder_.active();
  const uint64_t begin = now_ns();
  if (recorded && !begun) record_wait(RecordKind::kWaitBegin, task, begin);
  const int code = task.finished() ? HVD_OK : wait_as_driver(task, seconds);
  const uint64_t end = now_ns();
  metrics_.blocked_ns.add(end - begin);
  if (recorded) record_wait(RecordKind::kWaitEnd, task, end);
  return code;
}

void Engine::record_wait(RecordKind kind, const Task& task, uint64_t time) {
  const uint32_t name = task.recorded != 0 ? task.recorded : recorder_.names().of(task.request, 0);
  recorder_.add(time, kind, name, {0, static_cast<uint16_t>(task.request.process_set), 0}, thread_number(), 0,
                static_cast<uint64_t>(task.handle));
}

int Engine::wait_as_driver(Task& task, double seconds) {
  using Clock = std::chrono::steady_clock;
  // Waking a thread on an idle processor takes tens of microseconds, more than most small operations. Steps
  // of a training end further apart than these, but seldom more than a millisecond; so long a thread only
  // looks when no other wants its processor, and has not lost its place there when the last rank comes.
  constexpr auto kSpin = std::chrono::microseconds(100), kLinger = std::chrono::microseconds(1000);
  std::unique_lock<std::mutex> driver(driver_mutex_, std::try_to_lock);
  auto start = Clock::now();
  if (!driver.owns_lock()) {  // somebody else runs it, or leaves while this thread waits
    const int code = waiters_.wait(task, seconds, &driver);
    if (!driver.owns_lock()) return code;
    seconds -= std::chrono::duration<double>(Clock::now() - start).count();
    start = Clock::now();
  }
  visits_.fetch_add(1);
  int code = HVD_IN_PROGRESS, yields = 0;
  for (;;) {
    if (hub_) hub_->serve();
    drive();
    if (task.finished() || abort_->raised()) break;
    const auto passed = Clock::now() - start;
    if (spin_ ? passed < kLinger : yields++ < kYields) {
      if (!spin_ || passed >= kSpin) sched_yield();  // others may need this processor
      continue;
    }
    const double left = seconds - std::chrono::duration<double>(passed).count();
    if (left <= 0) break;
    if (!sleep_as_driver(left)) {
      code = HVD_INTERRUPTED;
      break;
    }
  }
  driver.unlock();
  waiters_.call_one();
  if (task.finished()) return HVD_OK;
  return abort_->raised() ? task.wait(seconds) : code;  // the engine thread fails everything that is pending
}

}  // namespace hvd
