#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/processors.h"
#include "base/thread.h"
#include "base/turns.h"
#include "check.h"
#include "comm/shm/group.h"

using namespace hvd;

TEST(members_within_their_share_stay) {
  for (int self = 0; self < 4; ++self) CHECK(fair_place({0, 1, 1, 0}, self, 2, {0, 1}) == -1);
}

TEST(who_comes_last_goes_where_there_is_room) {
  CHECK(fair_place({0, 0, 0, 1}, 0, 2, {0, 1}) == -1);
  CHECK(fair_place({0, 0, 0, 1}, 1, 2, {0, 1}) == -1);
  CHECK(fair_place({0, 0, 0, 1}, 2, 2, {0, 1}) == 1);
  CHECK(fair_place({0, 0, 0, 1}, 3, 2, {0, 1}) == -1);
}

TEST(several_find_different_places) {
  const std::vector<int> runs_on = {3, 3, 3, 3, 3, 3};
  std::vector<int> then = runs_on;
  for (int self = 0; self < 6; ++self) {
    int place = fair_place(runs_on, self, 2, {1, 3, 7});
    if (place >= 0) then[self] = place;
  }
  for (int processor : {1, 3, 7}) CHECK(std::count(then.begin(), then.end(), processor) == 2);
}

TEST(the_first_place_with_room_is_taken) {
  CHECK(fair_place({5, 5, 6}, 1, 1, {6, 7, 0, 5}) == 7);
  CHECK(fair_place({5, 5, 6, 5}, 3, 1, {6, 7, 0, 5}) == 0);
}

TEST(nobody_leaves_the_allowed_processors) {
  CHECK(fair_place({0, 0, 0}, 2, 1, {0}) == -1);
  CHECK(fair_place({0, 0, 0}, 2, 1, {}) == -1);
}

TEST(who_is_moved_back_incessantly_moves_ever_more_rarely) {
  using std::chrono::milliseconds;
  MoveLimit limit;
  MoveLimit::Clock::time_point now = MoveLimit::Clock::now();
  int moves = 0;
  for (int i = 0; i < 60'000; ++i) moves += limit.allows(now += milliseconds(1));
  CHECK(moves >= 13 && moves <= 25);
  // In peace again, it may move when it must.
  CHECK(limit.allows(now += milliseconds(70'000)));
  CHECK(limit.allows(now += milliseconds(2)));
}

TEST(a_move_now_and_then_is_always_allowed) {
  MoveLimit limit;
  MoveLimit::Clock::time_point now = MoveLimit::Clock::now();
  for (int i = 0; i < 1'000; ++i) CHECK(limit.allows(now += std::chrono::milliseconds(10)));
}

namespace {

// Whether `move` takes this thread to another processor. The scheduler may undo it, so there are some tries,
// far enough apart for MoveLimit.
template <typename Move>
bool moves(Move move) {
  for (int i = 0; i < 100; ++i) {
    const int here = this_processor();
    move();
    if (this_processor() != here) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

cpu_set_t allowed_here() {
  cpu_set_t allowed;
  CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  return allowed;
}

}  // namespace

TEST(moving_keeps_what_is_allowed) {
  const cpu_set_t before = allowed_here();
  const bool moved = moves([] { keep_apart({this_processor(), this_processor()}, 1); });
  const cpu_set_t after = allowed_here();
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(moved || CPU_COUNT(&before) == 1);
}

TEST(who_meets_another_on_its_processor_moves) {
  std::vector<std::byte> memory(ShmSegment::bytes(2) + 4096);
  void* start = memory.data();
  size_t space = memory.size();
  ShmSegment segment(std::align(4096, ShmSegment::bytes(2), start, space), 2, kSubSlotBytes);
  const AbortSignal abort;
  StagingUse<ShmGroup> staging[2];
  auto member = [&](int rank) {
    auto group = std::make_shared<ShmGroup>(segment, 0, std::vector<int>{0, 1}, rank, abort);
    return ShmProtocol<ShmGroup>(group, staging[rank]);
  };
  auto first = member(0), second = member(1);
  const bool moved = moves([&] {
    for (auto* protocol : {&first, &second}) {
      CHECK(protocol->begin_showing(false));
      protocol->show();
    }
    CHECK(second.await_all_shown());
  });
  const cpu_set_t allowed = allowed_here();
  CHECK(moved || CPU_COUNT(&allowed) == 1);
}

namespace {

// Processes that sleep, each allowed on one of `processors`. They end by themselves when the pipe is closed.
class Sleepers {
 public:
  explicit Sleepers(const std::vector<int>& processors) {
    CHECK(pipe(pipe_) == 0);
    for (int processor : processors) {
      const pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) {
        char nothing;
        close(pipe_[1]);
        _exit(static_cast<int>(read(pipe_[0], &nothing, 1)));
      }
      pids_.push_back(child);
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      CHECK(sched_setaffinity(child, sizeof one, &one) == 0);
    }
  }
  ~Sleepers() {
    close(pipe_[1]);
    for (pid_t pid : pids_) waitpid(pid, nullptr, 0);
    close(pipe_[0]);
  }
  const std::vector<int>& pids() const { return pids_; }

 private:
  int pipe_[2];
  std::vector<int> pids_;
};

std::vector<int> numbers_of(const cpu_set_t& set) {
  std::vector<int> numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) numbers.push_back(i);
  return numbers;
}

}  // namespace

TEST(ranks_bound_to_a_core_each_are_not_crowded) {
  const std::vector<int> here = numbers_of(allowed_here());
  const Sleepers ranks(here);  // as by mpirun --bind-to core
  const auto count = static_cast<int>(here.size());
  CHECK(allowed_processors(ranks.pids(), 0) == count);
  meet_ranks(ranks.pids(), 0);
  CHECK(crowded(count) == (processor_quota() > 0 && processor_quota() < count));
}

TEST(ranks_bound_to_the_same_core_are_crowded) {
  const int core = numbers_of(allowed_here()).front();
  const Sleepers ranks({core, core, core});  // as in a container with one
  CHECK(allowed_processors(ranks.pids(), 0) == 1);
  meet_ranks(ranks.pids(), 0);
  CHECK(crowded(3) && crowded(2) && !crowded(1));
}

TEST(ranks_that_cannot_be_seen_have_their_own_processor) {
  const Sleepers ranks({numbers_of(allowed_here()).front()});
  CHECK(allowed_processors(ranks.pids(), 3) == 4);
  std::vector<int> with_a_stranger = ranks.pids();
  with_a_stranger.push_back(std::numeric_limits<int>::max());  // no such process
  CHECK(allowed_processors(with_a_stranger, 0) == 2);
}

TEST(ranks_that_have_one_processor_do_not_look_for_another) {
  const int core = numbers_of(allowed_here()).front();
  const Sleepers ranks({core, core});
  meet_ranks(ranks.pids(), 0);
  int moved = 0;
  for (int i = 0; i < 100; ++i) {
    const int here = this_processor();
    keep_apart({here, here}, 1);
    if (this_processor() != here) moved++;
  }
  CHECK(moved < 50);  // the scheduler may move it now and then
}

namespace {

// A directory like /sys/fs/cgroup.
class Groups {
 public:
  Groups() { CHECK(mkdtemp(path_) != nullptr); }
  ~Groups() { std::filesystem::remove_all(path_); }
  Groups& write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = std::string(path_) + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return *this;
  }
  int quota(const std::string& membership) const { return processor_quota(membership, path_); }

 private:
  char path_[32] = "/tmp/hvd-groups-XXXXXX";
};

}  // namespace

TEST(quota_of_version_2) {
  CHECK(Groups().write("/cpu.max", "200000 100000\n").quota("0::/\n") == 2);
  CHECK(Groups().write("/cpu.max", "150000 100000\n").quota("0::/\n") == 2);
  CHECK(Groups().write("/cpu.max", "5000 100000\n").quota("0::/\n") == 1);
  CHECK(Groups().write("/cpu.max", "max 100000\n").quota("0::/\n") == 0);
  CHECK(Groups().write("/pod/box/cpu.max", "300000 100000\n").quota("0::/pod/box\n") == 3);
  CHECK(Groups().write("/unified/box/cpu.max", "300000 100000\n").quota("1:name=systemd:/\n0::/box\n") == 3);
}

TEST(the_tightest_quota_of_nested_groups_counts) {
  Groups groups;
  groups.write("/pod/cpu.max", "400000 100000").write("/pod/box/cpu.max", "max 100000");
  CHECK(groups.quota("0::/pod/box/inner") == 4);
  groups.write("/pod/box/inner/cpu.max", "100000 50000");
  CHECK(groups.quota("0::/pod/box/inner") == 2);
  CHECK(groups.quota("0::/pod/box") == 4);
  CHECK(groups.quota("0::/other") == 0);
}

TEST(quota_of_version_1) {
  for (const std::string mount : {"/cpu", "/cpu,cpuacct"}) {
    Groups groups;
    groups.write(mount + "/docker/1/cpu.cfs_quota_us", "250000\n");
    groups.write(mount + "/docker/1/cpu.cfs_period_us", "100000\n");
    groups.write(mount + "/docker/2/cpu.cfs_quota_us", "-1\n");
    groups.write(mount + "/docker/2/cpu.cfs_period_us", "100000\n");
    const std::string line = "9:memory:/docker/2\n4:cpu,cpuacct:/docker/";
    CHECK(groups.quota(line + "1\n3:cpuset:/\n") == 3);
    CHECK(groups.quota(line + "2\n3:cpuset:/\n") == 0);
    CHECK(groups.quota("9:memory:/docker/1\n5:cpuset:/docker/1\n") == 0);
  }
}

TEST(in_a_container_the_path_of_the_host_leads_nowhere) {
  Groups old;
  old.write("/cpu/cpu.cfs_quota_us", "200000\n").write("/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(old.quota("4:cpu,cpuacct:/docker/0123456789\n") == 2);
  CHECK(Groups().write("/cpu.max", "200000 100000\n").quota("0::/../../somewhere\n") == 2);
}

TEST(quota_of_nonsense_is_none) {
  CHECK(Groups().quota("0::/\n") == 0);
  for (const char* text :
       {"", "\n", "max", "x y", "100000", "-1 100000", "100000 0", "100000 -5", "0 100000", "1e300 1"})
    CHECK(Groups().write("/cpu.max", text).quota("0::/\n") == 0);
  Groups groups;
  groups.write("/cpu.max", "100000 100000");
  for (const char* text : {"", "\n", ":", "::", "0:", "0::", "0::relative", "garbage", "4:cpu"})
    CHECK(groups.quota(text) == 0);
  CHECK(Groups().write("/cpu/cpu.cfs_quota_us", "100000").quota("1:cpu:/") == 0);
}

TEST(threads_of_the_engine_take_short_turns) {
  auto look = [](SchedulingAttributes* seen) {
    if (syscall(SYS_sched_getattr, 0, seen, sizeof *seen, 0) != 0) *seen = {};
  };
  SchedulingAttributes ordinary{}, ours{};
  std::thread(look, &ordinary).join();
  start_thread("hvd-test", [&] { look(&ours); }).join();
  CHECK(ours.policy == ordinary.policy);
  CHECK(ours.nice == ordinary.nice);
  if (ordinary.runtime == 0 || ordinary.policy != SCHED_OTHER) return;  // this kernel knows of no turns
  CHECK(ours.runtime < ordinary.runtime);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
