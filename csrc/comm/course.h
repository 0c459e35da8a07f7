// What a communicator tells about the collective that a thread runs, for those who record it: by which
// algorithm it goes, and how long its parts take. Nobody need be interested.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/not_copied.h"

namespace hvd {

// horovod/timeline/records.py has their names.
enum class Algorithm : uint8_t {
  kUnknown = 0,
  kOnce = 1,       // shared memory, in one go
  kPipelined = 2,  // shared memory, chunk by chunk
  kWhole = 3,      // mesh: everything to everyone
  kShared = 4,     // mesh: each combines its share
  kDirect = 5,     // mesh: each sends to each what is his
  kRelayed = 6,    // mesh: those who have a part pass it on
  kHosts = 7,      // within the hosts, between them, and back
  kBlocks = 8,     // the same, block by block
  kInPlace = 9,    // shared memory, where the tensors are
};
enum class Phase : uint8_t { kWithinHost = 1, kNetwork = 2, kShareOut = 3 };

class Course : NotCopied {
 public:
  // Of the collective that this thread runs; null if nobody wants to know.
  static Course* current() { return current_; }

  // The outermost communicator's word counts.
  void goes(Algorithm algorithm) {
    if (algorithm_ == Algorithm::kUnknown) algorithm_ = algorithm;
  }
  Algorithm algorithm() const { return algorithm_; }
  // Nanoseconds of CLOCK_MONOTONIC; for any thread.
  virtual void phase(Phase phase, uint64_t begin, uint64_t end, size_t bytes) = 0;

 protected:
  Course() { current_ = this; }
  ~Course() { current_ = nullptr; }

 private:
  inline static thread_local Course* current_ = nullptr;
  Algorithm algorithm_ = Algorithm::kUnknown;
};

// From here to the end of the block is a phase of it, whichever thread this is.
class Phased : NotCopied {
 public:
  Phased(Course* course, Phase phase, size_t bytes)
      : course_(course), phase_(phase), bytes_(bytes), begin_(course == nullptr ? 0 : now()) {}
  ~Phased() {
    if (course_ != nullptr) course_->phase(phase_, begin_, now(), bytes_);
  }

 private:
  static uint64_t now() {
    return static_cast<uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
  Course* const course_;
  const Phase phase_;
  const size_t bytes_;
  const uint64_t begin_;
};

// Says by which algorithm the collective of this thread goes.
inline void goes(Algorithm algorithm) {
  if (Course* course = Course::current()) course->goes(algorithm);
}

}  // namespace hvd
