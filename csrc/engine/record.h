// What the recorder keeps of each event: records of one size, as they stand in memory and in part files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

// horovod/timeline/trace.py tells what the fields of each kind mean.
enum class RecordKind : uint16_t {
  kNone = 0,
  kSubmit = 1,  // `operation` is 1 if it calls back and no thread waits for it
  kReady = 2,
  kRelease = 3,
  kRunBegin = 4,
  kTensor = 5,
  kRunEnd = 6,
  kPhase = 7,
  kWaitBegin = 9,
  kWaitEnd = 10,
  kStep = 11,
  kMarkBegin = 12,
  kMarkEnd = 13,
  kMark = 14,
  kClock = 15,
  kWorld = 16,
  kCycle = 17,
  kFailed = 18,
  kDropped = 19,
  kAbort = 20,
  kProcessor = 21,
  // A row of small operations. `time` and `operation` are those of the first, `bytes` those of each, `extra`
  // its algorithm and kind (8 bits each), `argument` their number and the ns until the last has ended (32
  // each).
  kFold = 22,
  kFoldTime =
      23,  // belongs to the kFold before it: `extra` is a FoldTime, `bytes` its sum, `argument` the longest
  kFoldRank = 24,  // the same, on rank 0: rank `extra` was the last `operation` times, which cost the others
                   // `argument` ns together, and has waited `bytes` ns for other ranks
  // Of operation `operation` of the set 0, in one record, as it stands in memory only: `argument` is how many
  // ns after `time` it began to run and, 32 bits higher, ended; on rank 0 `bytes` is when rank 1 came;
  // `extra` are its bytes and `set` is the number of the thread.
  kMeeting = 25,
  // kRunBegin of an operation on one tensor, and the kTensor, in one record, as it stands in memory only:
  // `argument` is that of the kTensor.
  kRunAlone = 26,
  // kSubmit and, at the same time, kWaitBegin of thread `operation`, in one record, as it stands in memory
  // only.
  kSubmitAndWait = 27,
};

// Which time a kFoldTime sums up, with the longest; of each operation.
enum class FoldTime : uint16_t {
  kWhole,     // from the submission to the end of the wait
  kRun,       // as it ran
  kFlight,    // from the submission to the end of the run
  kBefore,    // of the wait: until the operation began,
  kTransfer,  // while it ran,
  kAfter,     // and until the thread went on
  kQueue,     // from the last rank's readiness to the release; rank 0
  kCount,
};

struct Record {
  uint64_t time = 0;  // nanoseconds of CLOCK_MONOTONIC
  uint32_t operation = 0;
  uint16_t set = 0, generation = 0;
  uint32_t name = 0;
  RecordKind kind{};
  uint16_t extra = 0;
  uint64_t bytes = 0;
  uint64_t argument = 0;
};
static_assert(sizeof(Record) == 40, "part files have them as they are in memory");

// What a name's number stands for.
struct RecordedName {
  static constexpr uint8_t kNone = 255;
  static constexpr uint8_t kAdasum = 9;  // in the place of the kind: an allreduce, but shown by its own name

  uint32_t number = 0;
  bool mark = false;
  uint8_t kind = kNone, type = kNone;  // of its first tensor
  uint16_t tensors = 0;
  std::vector<int64_t> shape;  // of its first tensor
  std::string text;
};

// Who records.
struct RecordedRank {
  int rank = 0, size = 1, local_rank = 0;
  int pid = 0;
  std::string transport;
  std::vector<std::string> hosts;  // [rank]
};

}  // namespace hvd
