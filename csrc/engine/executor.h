// Runs agreed operations on the communicators, on the engine thread, in the order in which they were
// released.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/task.h"
#include "wire/messages.h"

namespace hvd {

struct ProcessSet {
  std::vector<int> ranks;                      // sorted
  std::unique_ptr<Communicator> communicator;  // nullptr if this rank is no member
};

// An agreed operation and this rank's part in it; no task if this rank has joined.
struct Unit {
  std::shared_ptr<const wire::Agreement> agreement;
  std::shared_ptr<Task> task;
};

class Executor {
 public:
  Executor(Transport* transport, int rank, int size);

  // Runs units of one kind fused. A failure means that the transport is broken: the engine must abort.
  // Tasks are not finished here.
  Status run(const std::vector<Unit>& units);

  // Changes after construction only within run(); others may read under the engine's lock.
  const std::map<int, ProcessSet>& process_sets() const { return sets_; }
  // The part of run() that changes process_sets(); call it with the engine's lock held, after run().
  void commit_process_set(const Unit& unit);

 private:
  struct Part {
    const void* input;
    void* output;
    size_t bytes;
    DataType type;
  };

  Status allreduce(Communicator& communicator, const std::vector<Unit>& units);
  Status adasum(Communicator& communicator, const std::vector<Part>& parts);
  Status allgather(Communicator& communicator, const std::vector<Unit>& units);
  Status broadcast(Communicator& communicator, const std::vector<Unit>& units, const std::vector<int>& ranks);
  Status alltoall(Communicator& communicator, const std::vector<Unit>& units);
  Status reducescatter(Communicator& communicator, const std::vector<Unit>& units);
  Status open_process_set(const Unit& unit);

  Transport* transport_;
  int rank_;
  std::map<int, ProcessSet> sets_;
  ProcessSet opened_;
};

}  // namespace hvd
