// Which ends of steps count, of those that the program, its optimizers and its gradient tapes tell of: one
// for each step of the training. No clock and no locks: whoever asks has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace hvd {

class StepEnds {
 public:
  // The program itself says so, and is believed: from now on nobody else is. The step that its first one ends
  // may have been counted already.
  bool by_program() {
    const bool counted = !program_ && leader_ != kNobody;
    program_ = true;
    return !counted;
  }

  // An optimizer or a tape says so; `kind` tells it from others. Where several take turns, as those of a
  // generator and a discriminator, the first one's ends are those of the steps. One that comes twice before
  // the first comes again takes its place: it is more frequent, or what there is now.
  bool by_adapter(int64_t kind) {
    if (program_) return false;
    const bool again = kind == leader_ || leader_ == kNobody || others_.count(kind) != 0;
    if (!again && others_.size() < kMost) {
      others_.insert(kind);
      return false;
    }
    leader_ = kind;
    others_.clear();
    return true;
  }

 private:
  static constexpr int64_t kNobody = 0;
  // Beyond that they can't be told from such as never come again.
  static constexpr size_t kMost = 4096;

  bool program_ = false;
  int64_t leader_ = kNobody;
  std::unordered_set<int64_t> others_;  // have come since the leader did
};

}  // namespace hvd
