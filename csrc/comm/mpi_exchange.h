// An exchange by MPI messages.
//
// A stretch travels as messages of kMessage bytes and a rest: both ends cut it the same way. Each message
// passes through a buffer of the engine's own, never the user's memory: when a job fails, MPI may still hold
// requests that nothing can take back, and the user's memory is released then.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "comm/exchange.h"
#include "comm/mpi_calls.h"

namespace hvd {

// One direction to or from one rank, for all communicators of a transport: only one collective runs at a
// time.
class MpiLane {
 public:
  static constexpr size_t kMessage = 256 << 10;

  MpiLane() = default;
  MpiLane(MpiLane&&) = default;
  ~MpiLane() {
    if (active) buffer_.release();  // MPI still has it: better lost than written to after its end
  }
  std::byte* buffer() {
    if (!buffer_) buffer_.reset(new std::byte[kMessage]);
    return buffer_.get();
  }

  MpiRequest request;
  size_t bytes = 0;     // of the message under way
  bool active = false;  // there is one

 private:
  std::unique_ptr<std::byte[]> buffer_;
};

struct MpiPeer {
  MpiLane out, in;
};

class MpiExchange final : public Exchange {
 public:
  // members[i] is the world rank of member i; `peers` has an entry for each rank of the world.
  MpiExchange(MpiCalls& calls, std::vector<MpiPeer>& peers, const std::vector<int>& members, int rank,
              const AbortSignal& abort);
  Status run(Plan& plan) override;

 private:
  struct Direction {
    Stretch stretch;
    bool ended = false;
  };
  struct Way {
    int member;
    int world_rank;
    Direction out, in;
  };

  // Each starts or completes at most one message; true if it did, or if the direction has just ended.
  bool send(Plan& plan, Way& way);
  bool receive(Plan& plan, Way& way);
  // Whether the lane's message is complete.
  bool complete(MpiLane& lane, int world_rank);
  // Whether MPI's code means success; otherwise failure_ says what happened.
  bool check(int code, int world_rank);

  MpiCalls& calls_;
  std::vector<MpiPeer>& peers_;
  std::vector<Way> ways_;  // starting with the next higher rank
  const AbortSignal& abort_;
  Status failure_;
};

}  // namespace hvd
