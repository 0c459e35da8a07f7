// A thread that waits for an operation does the background threads' work itself, quicker than they could be
// woken. They keep away until no such visit has come for a moment, and then wait to be woken by what comes.
// In a long row of blocking calls even looking for visits disturbs, so the moment grows with the row. And
// where a visitor is about to do what woke a thread, as in training, where each step ends with a blocking
// call, it learns to stay away for longer without visits, looking now and then whether it is needed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace hvd {

class IdleBackoff {
 public:
  enum class Next {
    kAway,    // for pause(): somebody else is at work
    kLook,    // do what there is to do, learn() from it, then keep away for pause()
    kListen,  // wait until there is something to do, do it, learn() from it
  };

  explicit IdleBackoff(uint32_t visits) : seen_(visits) {}

  // To be asked again and again with the number of visits so far.
  Next update(uint32_t visits) {
    const bool visited = visits != seen_;
    seen_ = visits;
    quiet_ = visited ? quiet_.zero() : quiet_ + pause_;
    if (!visited && (pause_ == pause_.zero() || quiet_ >= patience_)) {
      pause_ = pause_.zero();
      return Next::kListen;
    }
    pause_ = std::clamp(2 * pause_, kShortest, kLongest);
    return visited ? Next::kAway : Next::kLook;
  }
  timespec pause() const { return {0, std::max({pause_, busy_, kShortest}).count()}; }
  // Whether, when this thread did look, another was at it. That one may be for long: then looking becomes
  // rare.
  void looked(bool busy) { busy_ = busy ? std::clamp(2 * busy_, kShortest, kLongest) : busy_.zero(); }

  // Whether there was something that nobody else had done.
  void learn(bool needed) {
    if (needed) {
      patience_ = kShortest;
      pause_ = pause_.zero();
    } else if (pause_ == pause_.zero()) {
      patience_ = std::min(2 * patience_, kMostPatience);
    }
  }

 private:
  static constexpr std::chrono::nanoseconds kShortest{500'000}, kLongest{4'000'000},
      kMostPatience{32'000'000};
  uint32_t seen_;
  std::chrono::nanoseconds pause_{0};             // zero while listening
  std::chrono::nanoseconds quiet_{0};             // for how long no visit has been seen
  std::chrono::nanoseconds patience_{kShortest};  // how long it may be so before it listens
  std::chrono::nanoseconds busy_{0};
};

}  // namespace hvd
