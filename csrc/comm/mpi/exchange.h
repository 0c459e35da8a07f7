// An exchange by MPI messages.
//
// A transfer travels as messages of kMessage bytes and a rest: both ends cut it the same connection. Each
// message passes through a buffer of the engine's own, never the user's memory: when a job fails, MPI may
// still hold requests that nothing can take back, and the user's memory is released then.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "comm/mesh/exchange.h"
#include "comm/mpi/calls.h"

namespace hvd {

// One direction to or from one rank, for all communicators of a transport: only one collective runs at a
// time.
class MpiMessage {
 public:
  static constexpr size_t kMessage = 256 << 10;

  MpiMessage() = default;
  MpiMessage(MpiMessage&&) = default;
  ~MpiMessage() {
    if (active) buffer_.release();  // MPI still has it: better lost than written to after its end
  }
  std::byte* buffer() {
    if (!buffer_) buffer_.reset(new std::byte[kMessage]);
    return buffer_.get();
  }

  MpiRequest request;
  size_t bytes = 0;     // of the message under connection
  bool active = false;  // there is one

 private:
  std::unique_ptr<std::byte[]> buffer_;
};

struct MpiMessages {
  MpiMessage out, in;
};

class MpiExchange final : public Exchange {
 public:
  // members[i] is the world rank of member i; `messages` has an entry for each rank of the world.
  MpiExchange(MpiCalls& calls, std::vector<MpiMessages>& messages, const std::vector<int>& members, int rank,
              const AbortSignal& abort);
  Status run(Plan& plan) override;

 private:
  struct Direction {
    Transfer transfer;
    bool ended = false;
  };
  struct Connection {
    int member;
    int world_rank;
    Direction out, in;
  };

  // Each starts or completes at most one message; true if it did, or if the direction has just ended.
  bool send(Plan& plan, Connection& connection);
  bool receive(Plan& plan, Connection& connection);
  // Whether the message's message is complete.
  bool complete(MpiMessage& message, int world_rank);
  // Whether MPI's code means success; otherwise failure_ says what happened.
  bool check(int code, int world_rank);

  MpiCalls& calls_;
  std::vector<MpiMessages>& messages_;
  std::vector<Connection> connections_;  // starting with the next higher rank
  const AbortSignal& abort_;
  Status failure_;
};

}  // namespace hvd
