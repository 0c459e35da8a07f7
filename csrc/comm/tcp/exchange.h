// An exchange over a mesh of stream sockets, of which there may be several between two ranks.
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "comm/mesh/exchange.h"
#include "comm/tcp/secure_link.h"
#include "comm/traffic.h"

namespace hvd {

class TcpExchange final : public Exchange {
 public:
  // Of a connection, on this rank's side. It may be made after the exchange, before it is used.
  struct End {
    int fd = -1;                         // none: this rank itself, or one to which nothing is ever sent
    std::unique_ptr<SecureLink> secure;  // what is sent over the descriptor is encrypted by this
  };
  struct Link {
    const std::vector<End>* streams;  // as many on all links
    int world_rank;                   // for messages
    Traffic* traffic;                 // counts all links
  };
  TcpExchange(std::vector<Link> links, int rank, const AbortSignal& abort);

  Status run(Plan& plan) override;

 private:
  // One way over one stream.
  struct Flow {
    Cursor place;  // of byte `at`
    size_t at = 0;
    bool blocked = false;  // the socket had no room or no data when last tried
  };
  // One way between two ranks. The bytes of a collective are counted over all its transfers.
  struct Direction {
    std::vector<Flow> flows;
    size_t end = 0;   // of the present transfer
    size_t left = 0;  // of it
    bool ended = false;

    void reset(size_t streams);
    void take(const Transfer& transfer);
    // What the stream has to move next; 0 bytes: nothing of this transfer.
    Transfer next(size_t stream);
    void moved(size_t stream, size_t bytes);
  };
  struct Connection {
    Link link;
    int peer;
    Direction out, in;
    const End& end(size_t stream) const { return (*link.streams)[stream]; }
  };
  enum class Moved { kSome, kNothing, kFailed };

  // Each moves one burst over each stream, unless the plan says later or the socket is blocked.
  Moved send(Plan& plan, Connection& connection);
  Moved receive(Plan& plan, Connection& connection);
  Moved send(Connection& connection, size_t stream);
  Moved receive(Connection& connection, size_t stream);
  // Whether encrypted bytes are left that the plan takes for sent.
  static bool has_unsent(const Connection& connection);
  // What a failed call of the system, or the end of the stream, means for a flow.
  Moved failed(ssize_t result, const Connection& connection, size_t stream, Flow& flow);
  // Waits until a blocked flow can go on or the abort signal is raised.
  void wait(int milliseconds);
  void fail(const Connection& connection, size_t stream, int error);

  std::vector<Connection> connections_;  // the peers, starting with the next higher rank
  size_t streams_ = 1;
  const AbortSignal& abort_;
  std::vector<pollfd> poll_;
  Status failure_;
  int patience_ = 16;  // looks before sleeping
};

}  // namespace hvd
