// How long a program has nothing to do because of operations for which no thread waits.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/called_back.h"
#include "thread_world.h"

namespace {

constexpr uint64_t kLate = 50'000'000;  // ns

uint64_t blocked_ns(Rank& rank) {
  const std::string names = hvd_metric_names();
  std::vector<uint64_t> values(1000);
  hvd_metrics(rank.engine, values.data(), static_cast<int32_t>(values.size()));
  size_t place = 0;
  for (size_t begin = 0; names.compare(begin, 11, "blocked_ns\n") != 0; begin = names.find('\n', begin) + 1)
    ++place;
  return values[place];
}

// A barrier that calls back, for which rank 1 comes late. How long rank 0 was blocked.
uint64_t blocked_by_barrier(Rank& rank, bool helps = false) {
  static std::atomic<bool> is_there{false};
  const uint64_t before = blocked_ns(rank);
  if (rank.rank == 1) {
    while (!is_there.exchange(false)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLate));
  }
  std::atomic<bool> over{false};
  hvd_request request = Rank::request(HVD_BARRIER, "called back");
  request.user = &over;
  request.done = [](void* user, const hvd_outcome*) { *static_cast<std::atomic<bool>*>(user) = true; };
  if (helps) {
    hvd_set_default(rank.engine);
    const hvd_handle handle = hvd_submit_default(&request);
    is_there = true;
    hvd_help_default(handle, 0.005);
    hvd_set_default(nullptr);
  } else {
    CHECK(rank.submit(request) > 0);
    is_there = rank.rank == 0;
  }
  while (!over) std::this_thread::yield();
  return blocked_ns(rank) - before;
}

}  // namespace

TEST(only_what_follows_the_last_submission_of_a_step_counts) {
  hvd::CalledBack called;
  called.submitted(100);
  called.submitted(110);
  CHECK(called.ended(150) == 0);
  CHECK(called.ended(170) == 60);  // nothing has told of steps so far
  CHECK(called.step_ended() == 0);
  called.submitted(200);
  CHECK(called.ended(230) == 0);
  called.submitted(240);  // so there was something to do
  CHECK(called.ended(245) == 0);
  CHECK(called.step_ended() == 5);
  CHECK(called.step_ended() == 0);
  called.submitted(300);
  CHECK(called.step_ended() == 0);  // it belongs to the next one
  CHECK(called.ended(310) == 0);
  CHECK(called.step_ended() == 10);
}

TEST(the_wait_for_a_late_rank_counts) {
  ThreadWorld(2).run([](Rank& rank) {
    const uint64_t blocked = blocked_by_barrier(rank);
    if (rank.rank == 0) CHECK(blocked >= kLate);
  });
}

TEST(the_time_of_a_thread_that_helps_does_not) {
  ThreadWorld(2).run([](Rank& rank) {
    hvd_mark(rank.engine, "step", HVD_MARK_STEP);  // from here on steps are what counts
    CHECK(blocked_by_barrier(rank, rank.rank == 0) == 0);
    const uint64_t before = blocked_ns(rank);
    hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    if (rank.rank == 0) CHECK(blocked_ns(rank) - before >= kLate);
  });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
