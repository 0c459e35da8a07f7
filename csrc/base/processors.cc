#include "base/processors.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/cgroup.h"

namespace hvd {

namespace {

std::atomic<int> allowed_to_ranks{0};  // 0: they have not met

int online_processors() {
  static const int count =
      std::max(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), 1);  // takes microseconds
  return count;
}

// Where the ranks of this host may run. A quota limits their time but not their places.
int places() {
  static const int alone = allowed_processors({0}, 0);
  const int together = allowed_to_ranks.load(std::memory_order_relaxed);
  return std::min(online_processors(), together > 0 ? together : alone);
}

// Those in the set, beginning behind `here`: neighbours in number tend to share caches and memory.
std::vector<int> others_first(const cpu_set_t& set, int here) {
  std::vector<int> found;
  for (int i = 1; i <= CPU_SETSIZE; ++i) {
    const int processor = (here + i) % CPU_SETSIZE;
    if (CPU_ISSET(processor, &set)) found.push_back(processor);
  }
  return found;
}

}  // namespace

int allowed_processors(const std::vector<int>& pids, int unseen) {
  cpu_set_t together, allowed;
  CPU_ZERO(&together);
  for (int pid : pids) {
    if (sched_getaffinity(pid, sizeof allowed, &allowed) == 0) {
      CPU_OR(&together, &together, &allowed);
    } else {
      ++unseen;
    }
  }
  return CPU_COUNT(&together) + unseen;
}

void meet_ranks(const std::vector<int>& pids, int unseen) {
  allowed_to_ranks.store(allowed_processors(pids, unseen), std::memory_order_relaxed);
}

bool crowded(int ranks_on_host) {
  static const int quota = processor_quota();
  return ranks_on_host > places() || (quota > 0 && ranks_on_host > quota);
}

int this_processor() { return sched_getcpu(); }

int fair_place(const std::vector<int>& runs_on, int self, int share, const std::vector<int>& allowed) {
  auto rank_among_neighbours = [&](int member) {
    return std::count(runs_on.begin(), runs_on.begin() + member, runs_on[member]);
  };
  if (rank_among_neighbours(self) < share) return -1;
  long before = 0;  // members that look for a place, too, and come first
  for (int member = 0; member < self; ++member) before += rank_among_neighbours(member) >= share;
  for (int processor : allowed) {
    const long room = share - std::count(runs_on.begin(), runs_on.end(), processor);
    if (room <= 0) continue;
    if (before < room) return processor;
    before -= room;
  }
  return -1;
}

bool MoveLimit::allows(Clock::time_point now) {
  const auto passed = now - last_;
  if (passed < pause_) return false;
  pause_ = passed < 8 * pause_ ? std::min(2 * pause_, kLongest) : kShortest;
  last_ = now;
  return true;
}

void keep_apart(const std::vector<int>& runs_on, int self) {
  const int share = (static_cast<int>(runs_on.size()) + places() - 1) / places();
  if (std::count(runs_on.begin(), runs_on.end(), runs_on[self]) <= share) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int place = fair_place(runs_on, self, share, others_first(allowed, runs_on[self]));
  if (place < 0) return;
  thread_local MoveLimit limit;
  if (share == 1 && !limit.allows(MoveLimit::Clock::now())) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(place, &there);
  // The first call moves the thread, the second makes it as free as before.
  if (sched_setaffinity(0, sizeof there, &there) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace hvd
