// What the ranks below have told of themselves, until it goes up with the next heartbeat: one message for all
// of them. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "wire/messages.h"

namespace hvd {

class ProgressBelow {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void add(wire::RankProgress told, Time now) {
    const int rank = told.rank;
    told_[rank] = {std::move(told), now};
  }
  // The latest of each rank, older by as long as it has been here.
  std::vector<wire::RankProgress> take(Time now) {
    std::vector<wire::RankProgress> all;
    for (auto& each : std::exchange(told_, {})) {
      auto& [told, since] = each.second;
      const auto held = std::chrono::duration_cast<std::chrono::nanoseconds>(now - since).count();
      if (told.progress.running_ns > 0) told.progress.running_ns += static_cast<uint64_t>(held);
      told.progress.idle_ns += static_cast<uint64_t>(held);
      all.push_back(std::move(told));
    }
    return all;
  }

 private:
  std::map<int, std::pair<wire::RankProgress, Time>> told_;
};

}  // namespace hvd
