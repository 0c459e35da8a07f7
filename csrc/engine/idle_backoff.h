// A thread that waits for an operation does the background threads' work itself, quicker than they could be
// woken. They keep away until no such visit has come for a moment. In a long row of blocking calls even
// looking for that disturbs, so the moment grows with the row.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace hvd {

class IdleBackoff {
 public:
  explicit IdleBackoff(uint32_t visits) : seen_(visits) {}

  // To be asked again and again with the number of visits so far. True: keep away for pause().
  bool update(uint32_t visits) {
    const bool visited = visits != seen_;
    seen_ = visits;
    pause_ = visited ? std::clamp(2 * pause_, kShortest, kLongest) : pause_.zero();
    return visited;
  }
  timespec pause() const { return {0, std::max(pause_, kShortest).count()}; }

 private:
  static constexpr std::chrono::nanoseconds kShortest{500'000}, kLongest{4'000'000};
  uint32_t seen_;
  std::chrono::nanoseconds pause_{0};
};

}  // namespace hvd
