// Keeps members that meet in shared memory from sharing a processor while another has none of them.
#pragma once

#include <atomic>
#include <vector>

#include "base/processors.h"
#include "comm/shm_transport.h"

namespace hvd {

class ShmPlaces {
 public:
  ShmPlaces(const MemberFlags& flags, int rank) : flags_(flags), rank_(rank), runs_on_(flags.size()) {}

  // Before this member shows that it has come. Written only when it changes, so that reading it stays cheap.
  void tell() {
    std::atomic<int>& mine = flags_[rank_]->processor;
    const int here = this_processor();
    if (mine.load(std::memory_order_relaxed) != here) mine.store(here, std::memory_order_relaxed);
  }

  // After all have come.
  void look() {
    for (size_t member = 0; member < flags_.size(); ++member)
      runs_on_[member] = flags_[member]->processor.load(std::memory_order_relaxed);
    keep_apart(runs_on_, rank_);
  }

 private:
  const MemberFlags& flags_;
  const int rank_;
  std::vector<int> runs_on_;
};

}  // namespace hvd
