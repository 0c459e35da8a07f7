// How the ranks of a host share its processors.
#pragma once

#include <chrono>
#include <vector>

namespace hvd {

// Tells the processes of the ranks on this host, and how many more there are that can't be seen from here.
// Processors count that any of them may run on: one rank can't tell its own core (mpirun --bind-to core) from
// the only core of all (a container's), but together they can. Who can't be seen is taken to have its own.
void meet_ranks(const std::vector<int>& pids, int unseen);
int allowed_processors(const std::vector<int>& pids, int unseen);

// There are more ranks than processors that they may use, or than the time that their cgroup has is worth.
bool crowded(int ranks_on_host);

// How often a rank that waits lets others run before it sleeps. That is quicker than sleeping at once, for
// the rank that is waited for may need this processor. But while one rank is alone on its processor and only
// yields, the scheduler takes that processor for busy and moves nobody there.
constexpr int kYields = 10;

// The one this thread runs on.
int this_processor();

// Where member `self` should run if its processor has more than `share` members: the first of `allowed` that
// has room, or -1 to stay. `runs_on` says where each member is; those who see the same find different places.
int fair_place(const std::vector<int>& runs_on, int self, int share, const std::vector<int>& allowed);

// Ranks that have a processor each seldom have to move, unless another job spreads over the same processors:
// the two undo each other's moves. Then a thread moves ever more rarely: it costs more than it brings, and
// where the kernel schedules by session (autogroup) incessant moves kept other threads, heartbeats among
// them, from running for seconds.
class MoveLimit {
 public:
  using Clock = std::chrono::steady_clock;
  bool allows(Clock::time_point now);

 private:
  static constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(8);
  Clock::time_point last_{};
  std::chrono::nanoseconds pause_ = kShortest;
};

// Moves this thread to its fair place. Ranks that wait for each other are awake only for moments, so the
// scheduler may leave two of them on one processor for many milliseconds while another is idle.
void keep_apart(const std::vector<int>& runs_on, int self);

}  // namespace hvd
