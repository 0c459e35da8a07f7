// The members of a shared-memory communicator as one of them sees them: their flags, and how it waits for
// them.
#pragma once

#include <algorithm>
#include <vector>

#include "base/processors.h"
#include "comm/shm/protocol.h"
#include "comm/shm/segment.h"

namespace hvd {

#ifdef HVD_TEST_DELAYS  // only where test_shm_delays.cc is built, which may stop any rank here
void test_delay();
#else
inline void test_delay() {}
#endif

class ShmGroup {
 public:
  // `members` are ranks of the segment, of which `rank` is this one; `id` identifies the communicator.
  ShmGroup(const ShmSegment& segment, int id, const std::vector<int>& members, int rank,
           const AbortSignal& abort)
      : id_(id),
        rank_(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin())),
        waiting_{abort, crowded(segment.ranks())},
        runs_on_(members.size()) {
    for (int member : members) flags_.push_back(&segment.flags(id, member));
  }

  int id() const { return id_; }
  int rank() const { return rank_; }  // among the members
  int size() const { return static_cast<int>(flags_.size()); }
  const Waiting& waiting() const { return waiting_; }

  // False: the abort signal was raised.
  bool await(Counter counter, int member, uint32_t value) {
    test_delay();
    const bool arrived = wait(flag(counter, member), value, waiting_);
    test_delay();
    return arrived;
  }
  void post(Counter counter, uint32_t value) {
    test_delay();
    hvd::post(flag(counter, rank_), value);
    test_delay();
  }
  Flag& flag(Counter counter, int member) const { return flags_[member]->counters[counter]; }

  // Where this member runs, before it says that it has come. Written only when it changes, so that reading it
  // stays cheap.
  void tell_place() {
    std::atomic<int>& mine = flags_[rank_]->processor;
    const int here = this_processor();
    if (mine.load(std::memory_order_relaxed) != here) mine.store(here, std::memory_order_relaxed);
  }
  // After all have come: moves to another processor if this one has too many members.
  void keep_apart() {
    for (size_t member = 0; member < flags_.size(); ++member)
      runs_on_[member] = flags_[member]->processor.load(std::memory_order_relaxed);
    hvd::keep_apart(runs_on_, rank_);
  }

 private:
  const int id_;
  const int rank_;
  const Waiting waiting_;
  std::vector<RankFlags*> flags_;
  std::vector<int> runs_on_;
};

}  // namespace hvd
