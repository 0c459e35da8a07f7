// When rank 0 looks at the job, and what it says then.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/log.h"
#include "check.h"
#include "engine/inspector.h"
#include "test_knobs.h"

namespace {

using Clock = std::chrono::steady_clock;
using hvd::Inspector;
using hvd::Negotiation;

// A job of two ranks in which the second keeps the first waiting.
struct Job {
  Inspector::Sources sources() {
    Inspector::Sources sources;
    sources.waiting = [this](double) {
      looks++;
      return closing ? std::vector<Negotiation::Stalled>{}
                     : std::vector<Negotiation::Stalled>{{1, "late", 5.0, {0}, {1}}};
    };
    sources.closing = [this] { return closing.load(); };
    sources.late = [this] {
      Negotiation::Late last;
      last.times = static_cast<uint64_t>(late);
      last.cost = std::chrono::milliseconds(10 * late);
      return std::vector<Negotiation::Late>{{}, last};
    };
    sources.own_progress = [] { return hvd::wire::Progress{}; };
    sources.ask = [](int, uint32_t, const std::string&) {};
    return sources;
  }
  static hvd_knobs knobs() {
    hvd_knobs knobs = test_knobs();
    knobs.stall_check_time_seconds = 1;
    knobs.stall_stacks = 0;
    return knobs;
  }
  void wait_for_looks(int more) const {
    for (const int before = looks; looks < before + more;)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // All that has been told.
  std::string told() {
    std::string text;
    for (hvd::Notice notice; notices.next(0, &notice);) text += notice.text;
    return text;
  }

  std::atomic<int> looks{0};
  std::atomic<int> late{0};
  std::atomic<bool> closing{false};
  hvd::Log log{HVD_LOG_INFO, true, 0};
  hvd::Metrics metrics;
  hvd::Notices notices;
  hvd::AbortSignal abort;
  Inspector inspector{knobs(), {{"a", 1}, {"b", 2}},   sources(), log, &metrics, &notices,
                      &abort,  std::chrono::seconds(1)};
};

}  // namespace

TEST(what_a_shutdown_ends_does_not_go_on) {
  Job job;
  job.inspector.start();
  job.wait_for_looks(2);  // the second one begins when the first one has been told of
  CHECK(job.told().find(R"("event": "stall")") != std::string::npos);
  job.closing = true;
  job.wait_for_looks(3);
  job.inspector.stop();
  const std::string told = job.told();
  CHECK(told.find("stall_resolved") == std::string::npos);
}

TEST(a_rank_is_slow_if_it_is_the_last_nearly_always_and_costs_a_good_part_of_the_time) {
  using std::chrono::seconds;
  const std::vector<Negotiation::Late> before = {{100, seconds(50), {}}, {0, seconds(0), {}}};
  auto later = [&](uint64_t first, uint64_t second, int cost) {
    return hvd::find_slow_rank(before, {{100 + first, seconds(50), {}}, {second, seconds(cost), {}}}, 60);
  };
  const hvd::SlowRank slow = later(10, 90, 7);
  CHECK(slow.rank == 1 && slow.share == 0.9 && slow.seconds == 7);
  CHECK(later(20, 80, 7).rank == -1);  // not often enough
  CHECK(later(10, 90, 6).rank == -1);  // not long enough
  CHECK(later(0, 49, 30).rank == -1);  // too few to tell
}

TEST(a_slow_rank_and_a_cache_that_is_too_small_are_told_once) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const int standard_output = dup(1);
  std::fflush(stdout);
  CHECK(dup2(ends[1], 1) == 1);
  std::string told;
  {
    Job job;
    job.closing = true;  // nothing is looked for
    job.inspector.start();
    for (int look = 0; look < 8; ++look) {  // two a second
      job.late += 50;                       // which cost half a second together
      job.metrics.cache_evictions.add(2500);
      job.wait_for_looks(1);
    }
    job.inspector.stop();
    told = job.told();
  }
  std::fflush(stdout);
  CHECK(dup2(standard_output, 1) == 1);
  char buffer[4096];
  const ssize_t got = read(ends[0], buffer, sizeof buffer);
  const std::string logged(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  for (int fd : {ends[0], ends[1], standard_output}) close(fd);
  const size_t at = told.find(R"({"event": "slow_rank", "rank": 1, "host": "b", "share": 1.000, )");
  CHECK(at != std::string::npos && told.find("slow_rank", at + 20) == std::string::npos);
  const size_t evicted = logged.find(" tensors were evicted from the cache");
  CHECK(evicted != std::string::npos &&
        logged.find("HOROVOD_CACHE_CAPACITY=1024", evicted) != std::string::npos);
  CHECK(logged.find("evicted", evicted + 30) == std::string::npos);
}

TEST(it_stops_at_once) {
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    Job job;
    job.inspector.start();
    job.inspector.stop();
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
