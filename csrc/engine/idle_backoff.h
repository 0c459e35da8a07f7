// A thread that waits for an operation does the background threads' work itself, quicker than they could be
// woken. They keep away until no such visit has come for a moment. In a long row of blocking calls even
// looking for that disturbs, so the moment grows with the row. And where it was in vain several times, as
// visitors always come for what has arrived, it is long from the start: longer than most steps of training.
// Not if operations are left alone, that is submitted by threads that do something else then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace hvd {

class IdleBackoff {
 public:
  explicit IdleBackoff(uint32_t visits) : seen_(visits) {}

  // To be asked again and again with the numbers of visits and of operations left alone so far. True: keep
  // away for pause().
  bool update(uint32_t visits, uint32_t left_alone) {
    const bool visited = visits != seen_;
    seen_ = visits;
    if (left_alone != left_alone_) in_vain_ = 0;
    left_alone_ = left_alone;
    if (!visited) {
      pause_ = pause_.zero();
    } else {
      pause_ = in_vain_ < kOften ? std::clamp(2 * pause_, kShortest, kLongest) : kMuchLonger;
    }
    return visited;
  }
  timespec pause() const { return {0, std::max({pause_, busy_, kShortest}).count()}; }
  // Whether, when this thread did look, another was at it. That one may be for long: then looking becomes
  // rare.
  void looked(bool busy) { busy_ = busy ? std::clamp(2 * busy_, kShortest, kLongest) : busy_.zero(); }
  // Something arrived while this thread listened: whether it had to do anything.
  void woken(bool of_use) { in_vain_ = of_use ? 0 : std::min(in_vain_ + 1, kOften); }

 private:
  static constexpr std::chrono::nanoseconds kShortest{500'000}, kLongest{4'000'000}, kMuchLonger{16'000'000};
  static constexpr int kOften = 4;
  uint32_t seen_, left_alone_ = 0;
  int in_vain_ = 0;
  std::chrono::nanoseconds pause_{0}, busy_{0};
};

}  // namespace hvd
