// Runs agreed operations on the communicators, on the engine thread, in the order in which they were
// released.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "comm/transport.h"
#include "engine/task.h"
#include "wire/messages.h"

namespace hvd {

struct ProcessSet {
  std::vector<int> ranks;                      // sorted
  std::unique_ptr<Communicator> communicator;  // nullptr if this rank is no member
};

// An agreed operation and this rank's part in it; no task if this rank has joined.
struct AgreedTask {
  std::shared_ptr<const wire::Agreement> agreement;
  std::shared_ptr<Task> task;
};

// What an allreduce of one tensor by `size` ranks computes, if that takes one pass over the data.
std::optional<Reduction> plain_reduction(const wire::Request& request, int size);

class Executor {
 public:
  Executor(Transport* transport, int rank, int size);

  // Runs tasks of one kind fused. A failure means that the transport is broken: the engine must abort.
  // Tasks are not finished here.
  Status run(const std::vector<AgreedTask>& tasks);

  // Changes after construction only within run(); others may read under the engine's lock.
  const std::map<int, ProcessSet>& process_sets() const { return sets_; }
  // The part of run() that changes process_sets(); call it with the engine's lock held, after run().
  void commit_process_set(const AgreedTask& each);

 private:
  Status open_process_set(const AgreedTask& each);

  Transport* transport_;
  int rank_;
  std::map<int, ProcessSet> sets_;
  ProcessSet opened_;
};

}  // namespace hvd
