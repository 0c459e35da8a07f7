// Whether copies to shared memory should bypass the cache.
//
// Which is faster, by a factor of up to three, depends on where the ranks' processors are, and in a virtual
// machine that changes while the job runs. So both ways are tried on real data, in turn and now and then
// again. All ranks try the same way at the same time (they see the same chunks), as much of the effect shows
// on the reading side.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hvd {

class StoreChoice {
 public:
  // How to store the next chunk of the pipeline.
  bool next(size_t bytes) {
    if (chunk_ == kLength) finish_trial();
    if (chunk_ == kWarmUp) start_ = Clock::now();
    if (chunk_ >= kWarmUp) bytes_ += bytes;
    ++chunk_;
    return streaming();
  }
  // The operation is over: time passes until the next chunk that is not the pipeline's.
  void pause() {
    if (chunk_ >= kShortest) finish_trial();
    chunk_ = 0;
    bytes_ = 0;
  }
  // For operations that are not measured.
  bool best() const { return score_ < 0; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kWarmUp = 2;        // chunks still under way from before
  static constexpr int kShortest = 6;      // chunks that make a usable measurement
  static constexpr int kLength = 16;       // chunks
  static constexpr uint32_t kFirst = 6;    // trials before the first choice is trusted
  static constexpr uint32_t kPeriod = 64;  // trials between two comparisons later on

  bool comparing() const { return trial_ < kFirst || trial_ % kPeriod < 2; }
  bool streaming() const { return comparing() ? trial_ % 2 == 1 : best(); }

  void finish_trial() {
    double time = std::chrono::duration<double>(Clock::now() - start_).count() / static_cast<double>(bytes_);
    if (comparing()) {
      if (trial_ % 2 == 0) {
        cached_ = time;
      } else if (cached_ > 0 && time > 0) {
        // A single measurement may be off by any factor when the rank lost its processor.
        score_ = 0.5 * score_ + 0.5 * std::log(std::clamp(time / cached_, 0.5, 2.0));
      }
    }
    ++trial_;
    chunk_ = 0;
    bytes_ = 0;
  }

  uint32_t trial_ = 0;
  int chunk_ = 0;
  size_t bytes_ = 0;
  Clock::time_point start_;
  double cached_ = 0;  // seconds per byte of the last trial with cached stores
  double score_ = 0;   // negative: streaming is faster
};

}  // namespace hvd
