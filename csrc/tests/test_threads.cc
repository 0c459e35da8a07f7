// Several application threads on one engine: who of them drives it, and who goes on when that one leaves.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "base/processors.h"
#include "check.h"
#include "engine/waiters.h"
#include "thread_world.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLong = 100.0;  // seconds: a wait that lasts so long hangs

hvd::Task barrier_task() { return hvd::Task(Rank::request(HVD_BARRIER, "barrier")); }

// Nobody can see from outside that a thread has come to wait. If it has not, the checks below still hold, for
// they are about what comes next; but they see less.
void let_it_fall_asleep() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// A thread that waits for a task, and drives once it gets the mutex.
std::thread waiting_driver(hvd::Waiters& waiters, hvd::Task& task, std::mutex& mutex) {
  return std::thread([&] {
    std::unique_lock<std::mutex> driver(mutex, std::defer_lock);
    waiters.wait(task, kLong, &driver);
    CHECK(driver.owns_lock());
  });
}

}  // namespace

TEST(helping_ends) {
  CHECK(hvd_help_default(1, 1e9) == HVD_IN_PROGRESS);  // there is no default engine
  ThreadWorld(2).run([](Rank& rank) {
    static hvd_handle late = 0;
    static std::atomic<int32_t> nested{HVD_UNKNOWN};
    if (rank.rank == 0) {
      hvd_set_default(rank.engine);
      hvd_request request = Rank::request(HVD_BARRIER, "late");
      request.done = [](void*, const hvd_outcome*) {};
      late = hvd_submit_default(&request);
      CHECK(hvd_help_default(late, 0.01) == HVD_IN_PROGRESS);  // the other rank comes after the next one
      request.name = "early";
      // Who is called by the engine holds it up, and would wait for itself.
      request.done = [](void*, const hvd_outcome*) { nested = hvd_help_default(late, 1e9); };
      const hvd_handle early = hvd_submit_default(&request);
      CHECK(early > 0 && hvd_help_default(early, 1e9) == HVD_OK);
      CHECK(nested == HVD_IN_PROGRESS);
      CHECK(hvd_help_default(late, 1e9) == HVD_OK);
      CHECK(hvd_help_default(late, 1e9) == HVD_OK);  // over, and its handle gone
      hvd_set_default(nullptr);
    } else {
      CHECK(rank.simple(HVD_BARRIER, "early") == HVD_OK);
      CHECK(rank.simple(HVD_BARRIER, "late") == HVD_OK);
    }
  });
}

// How often this thread has gone to sleep.
int64_t sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST(ranks_that_are_a_little_apart_do_not_sleep) {
  if (hvd::crowded(2)) return;  // then they do, to let the other run
  constexpr int kRounds = 20;
  constexpr auto kApart = std::chrono::microseconds(400);
  int64_t fewest = kRounds;
  // The machine may have other things to do, and then the other rank takes longer.
  for (int attempt = 0; attempt < 20 && fewest > kRounds / 4; ++attempt)
    ThreadWorld(2).run([&](Rank& rank) {
      for (int round = -1; round < kRounds; ++round) {
        const auto ready = Clock::now() + (rank.rank == 0 ? kApart.zero() : kApart);
        while (Clock::now() < ready) {
        }
        static int64_t before = 0;
        if (rank.rank == 0 && round == 0) before = sleeps();
        CHECK(rank.simple(HVD_BARRIER, "apart") == HVD_OK);
        if (rank.rank == 0 && round == kRounds - 1) fewest = std::min(fewest, sleeps() - before);
      }
    });
  CHECK(fewest <= kRounds / 4);
}

TEST(who_waits_drives_when_the_driver_leaves) {
  hvd::Waiters waiters;
  for (int round = 0; round < 200; ++round) {
    std::mutex mutex;
    hvd::Task task = barrier_task();
    std::unique_lock<std::mutex> mine(mutex);
    std::thread other = waiting_driver(waiters, task, mutex);
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round));
    mine.unlock();
    waiters.call_one();
    other.join();
  }
}

TEST(who_is_called_while_another_drives_is_called_again) {
  hvd::Waiters waiters;
  std::mutex mutex;
  hvd::Task task = barrier_task();
  std::unique_lock<std::mutex> mine(mutex);
  std::thread other = waiting_driver(waiters, task, mutex);
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 0) let_it_fall_asleep();
    waiters.call_one();
  }
  mine.unlock();
  waiters.call_one();
  other.join();
}

TEST(all_who_wait_drive_in_turn) {
  hvd::Waiters waiters;
  std::mutex mutex;
  std::atomic<int> drove{0};
  std::unique_lock<std::mutex> mine(mutex);
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i)
    others.emplace_back([&] {
      hvd::Task task = barrier_task();
      std::unique_lock<std::mutex> driver(mutex, std::defer_lock);
      waiters.wait(task, kLong, &driver);
      CHECK(driver.owns_lock());
      drove++;
      driver.unlock();
      waiters.call_one();
    });
  let_it_fall_asleep();
  mine.unlock();
  waiters.call_one();
  for (std::thread& thread : others) thread.join();
  CHECK(drove == 8);
}

TEST(a_call_that_comes_too_late_is_passed_on) {
  hvd::Waiters waiters;
  std::mutex mutex;
  for (int round = 0; round < 1000; ++round) {
    std::unique_lock<std::mutex> mine(mutex);
    // The first gives up at about the time of the call.
    std::thread impatient([&] {
      hvd::Task task = barrier_task();
      std::unique_lock<std::mutex> driver(mutex, std::defer_lock);
      waiters.wait(task, 0.0003, &driver);
      if (!driver.owns_lock()) return;
      driver.unlock();
      waiters.call_one();
    });
    std::thread patient([&] {
      hvd::Task task = barrier_task();
      std::unique_lock<std::mutex> driver(mutex, std::defer_lock);
      waiters.wait(task, kLong, &driver);
      CHECK(driver.owns_lock());
    });
    const auto call_at = Clock::now() + std::chrono::microseconds(round % 50 * 10);
    while (Clock::now() < call_at) {
    }
    mine.unlock();
    waiters.call_one();
    impatient.join();
    patient.join();
  }
}

TEST(waiting_ends_when_the_task_does_or_the_time_is_up) {
  hvd::Waiters waiters;
  std::mutex mutex;
  hvd::Task never = barrier_task(), task = barrier_task();
  std::lock_guard<std::mutex> mine(mutex);
  std::thread other([&] {
    std::unique_lock<std::mutex> driver(mutex, std::defer_lock);
    CHECK(waiters.wait(never, 0.01, &driver) == HVD_IN_PROGRESS && !driver.owns_lock());
    CHECK(waiters.wait(task, kLong, &driver) == HVD_OK && !driver.owns_lock());
  });
  let_it_fall_asleep();
  waiters.call_one();  // is no reason to return: the driver has not left
  task.finish({});
  waiters.call_one();
  other.join();
}

namespace {

// An allgather of a few bytes that notes which thread runs it.
struct Gather {
  explicit Gather(std::string name) : name(std::move(name)) {}

  hvd_handle submit(Rank& rank) {
    hvd_tensor tensor{input, nullptr, &length, 1, HVD_UINT8, HVD_CPU, 0};
    hvd_request request = Rank::request(HVD_ALLGATHER, name.c_str());
    request.tensor_count = 1;
    request.tensors = &tensor;
    request.allocate = [](void* user, int32_t, const int64_t*, int32_t) -> void* {
      auto* self = static_cast<Gather*>(user);
      self->run_by = std::this_thread::get_id();
      while (self->held) std::this_thread::yield();
      return self->output;
    };
    request.user = this;
    return rank.submit(request);
  }

  const std::string name;
  const int64_t length = 4;
  uint8_t input[4] = {}, output[64] = {};
  std::atomic<std::thread::id> run_by{};
  std::atomic<bool> held{false};  // whoever runs it stays in it
};

// On rank `tested` one thread drives, another one waits. After the operation of the first nothing happens for
// a moment. Then the other's is to be run by that thread itself: it must not depend on a background thread.
void check_that_the_waiter_takes_over(int tested) {
  constexpr int kRounds = 30;
  int counted = 0, taken_over = 0;
  std::atomic<int> waiting{0};
  ThreadWorld(2).run([&](Rank& rank) {
    for (int round = 1; round <= kRounds; ++round) {
      Gather probe("probe"), late("late");
      std::vector<float> data(1);
      if (rank.rank != tested) {
        CHECK(rank.finish(probe.submit(rank)) == HVD_OK);
        while (waiting < round) std::this_thread::yield();
        let_it_fall_asleep();
        CHECK(rank.allreduce("early", data) == HVD_OK);
        let_it_fall_asleep();
        CHECK(rank.finish(late.submit(rank)) == HVD_OK);
        continue;
      }
      hvd_handle probed = probe.submit(rank), last = late.submit(rank);
      hvd_handle first = rank.allreduce_async("early", data);
      std::thread other([&] {
        while (probe.run_by.load() == std::thread::id()) std::this_thread::yield();
        waiting = round;
        CHECK(rank.finish(last) == HVD_OK);
      });
      const std::thread::id other_id = other.get_id();
      CHECK(rank.finish(first) == HVD_OK);
      other.join();
      CHECK(rank.finish(probed) == HVD_OK);
      if (probe.run_by.load() != std::this_thread::get_id()) continue;  // the engine thread was quicker
      counted++;
      if (late.run_by.load() == other_id) taken_over++;
    }
  });
  // Other programs may keep a thread from running for longer than a moment, but not most of the time.
  CHECK(counted > 0 && taken_over > counted / 2);
}

}  // namespace

TEST(the_waiter_on_the_coordinators_rank_takes_over) { check_that_the_waiter_takes_over(0); }

TEST(the_waiter_on_another_rank_takes_over) { check_that_the_waiter_takes_over(1); }

TEST(who_waits_drives_when_the_engine_thread_has) {
  constexpr int kRounds = 30;
  int taken_over = 0;
  std::atomic<int> waiting{0};
  ThreadWorld(2).run([&](Rank& rank) {
    for (int round = 1; round <= kRounds; ++round) {
      Gather early("early"), late("late");
      early.held = rank.rank == 0;
      hvd_handle first = early.submit(rank);
      if (rank.rank == 1) {
        CHECK(rank.finish(first) == HVD_OK);
        while (waiting < round) std::this_thread::yield();
        let_it_fall_asleep();
        CHECK(rank.finish(late.submit(rank)) == HVD_OK);
        continue;
      }
      hvd_handle last = late.submit(rank);
      while (early.run_by.load() == std::thread::id()) std::this_thread::yield();
      std::thread release([&] {
        let_it_fall_asleep();
        early.held = false;
        waiting = round;
      });
      CHECK(rank.finish(last) == HVD_OK);
      if (late.run_by.load() == std::this_thread::get_id()) taken_over++;
      release.join();
      CHECK(rank.finish(first) == HVD_OK);
    }
  });
  CHECK(taken_over > kRounds / 2);
}

TEST(threads_wait_for_each_others_operations_in_different_order) {
  constexpr int kOperations = 1500;
  for (int size : {2, 3})
    ThreadWorld(size).run([&](Rank& rank) {
      auto stream = [&](unsigned number) {
        std::mt19937 random(number * 100 + static_cast<unsigned>(rank.rank));
        auto pause = [&] {
          if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        };
        for (int i = 0; i < kOperations; ++i) {
          std::vector<float> data(1, static_cast<float>(rank.rank));
          hvd_handle handle = rank.allreduce_async("stream " + std::to_string(number), data);
          CHECK(handle > 0);
          pause();
          // Often giving up and coming back, so that calls come too late.
          const auto start = Clock::now();
          int code = HVD_IN_PROGRESS;
          while (code > 0) {
            code = hvd_wait(rank.engine, handle, static_cast<double>(1 + random() % 200) * 1e-5);
            CHECK(Clock::now() - start < std::chrono::duration<double>(kLong));
          }
          CHECK(code == HVD_OK && data[0] == static_cast<float>(size * (size - 1) / 2));
          hvd_release(rank.engine, handle);
          pause();
        }
      };
      // What the first thread does here the second may do elsewhere.
      std::thread other(stream, static_cast<unsigned>(rank.rank + 1) % 2);
      stream(static_cast<unsigned>(rank.rank) % 2);
      other.join();
    });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
