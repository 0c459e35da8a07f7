// Small operations of one name that a rank waits for one after the other may come 400,000 times a second. To
// write nine records of each took half as long as the operations themselves, and nobody could look at them: a
// row of them becomes one fold, with the exact number and sums. What is slow, or large, or in any way unlike
// the one before it, stays as it is. Pure: records in, records out.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/record.h"

namespace hvd {

class RecordFolding {
 public:
  static constexpr uint64_t kQuick = 100'000;   // ns; an operation that takes longer is never folded
  static constexpr uint64_t kSmall = 64 << 10;  // bytes; the same for a larger one
  static constexpr uint32_t kFew = 16;          // as many in a row stay as they are

  // `votes`: of rank 0, whose records tell when each of the `size` ranks was ready. `cycles`: and where a
  // cycle of the coordinator is to be marked.
  RecordFolding(int size, bool votes, bool cycles = false)
      : votes_(votes), cycles_(cycles), lags_(static_cast<size_t>(votes ? size : 0)) {}

  // Appends what is to be written to `out`, each kind of record in its order; some of it is kept back.
  void add(const Record& record, std::vector<Record>* out);
  // Appends what was kept back.
  void flush(std::vector<Record>* out);

 private:
  // One operation, from its submission to the end of the wait for it. Its records are those in held_.
  struct Operation {
    bool submitted = false, released = false, running = false, ended = false;
    uint32_t name = 0, number = 0;
    uint16_t set = 0, generation = 0, kind = 0, algorithm = 0, thread = 0;
    uint64_t handle = 0, bytes = 0;
    uint64_t submit = 0, wait = 0, release = 0, begin = 0, end = 0, waited = 0;  // 0: not yet
  };
  struct Vote {
    uint64_t rank, time;
  };
  struct Time {
    uint64_t sum = 0, longest = 0;
    void add(uint64_t time) {
      sum += time;
      if (time > longest) longest = time;
    }
  };
  // What a rank has waited for others, how often it was the last, and what the others waited for it then.
  struct Lag {
    uint64_t waited = 0, caused = 0;
    uint32_t last = 0;
  };

  bool belongs(const Record& record);
  bool vote(const Record& record);
  void meet(const Record& meeting, std::vector<Record>* out);
  bool meet_again(const Record& meeting);
  void complete(std::vector<Record>* out);
  bool continues_row() const;
  void count();
  void end_row(std::vector<Record>* out);
  void next_operation();
  void write(const std::vector<Record>& records, std::vector<Record>* out) const;
  void write(const Record& record, std::vector<Record>* out) const;

  const bool votes_, cycles_;
  Operation now_;
  std::vector<Vote> ready_;
  std::vector<Record> held_;   // of the operation that is not complete
  std::vector<Record> early_;  // votes for the one after it

  // The row: count_ operations, the first and the last of them.
  uint32_t count_ = 0;
  Operation first_, last_;
  std::vector<Record> row_;  // their records, as long as they are few
  Time& time(FoldTime which) { return times_[static_cast<size_t>(which)]; }
  Time times_[static_cast<size_t>(FoldTime::kCount)];
  std::vector<Lag> lags_;  // [rank]
};

}  // namespace hvd
