// Numbers of operations that are the same on every member of a process set, without being sent: releases have
// one order, so the n-th operation of a set is the same one everywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

struct OperationNumber {
  uint32_t operation = 0;            // from 1, within its set
  uint16_t set = 0, generation = 0;  // how many sets had this id before
};

class OperationNumbers {
 public:
  OperationNumber next(int32_t set) {
    OperationNumber& last = of(set);
    last.operation++;
    return last;
  }
  // The id belongs to a new set from now on.
  void added(int32_t set) {
    OperationNumber& last = of(set);
    if (last.set != 0) last.generation++;
    last.set = static_cast<uint16_t>(set);
    last.operation = 0;
  }

 private:
  OperationNumber& of(int32_t set) {
    const auto index = static_cast<size_t>(set);
    if (index >= last_.size()) last_.resize(index + 1);
    return last_[index];
  }
  std::vector<OperationNumber> last_;
};

}  // namespace hvd
