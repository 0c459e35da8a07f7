// An exchange over a mesh of stream sockets.
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
    const End* end;
    int world_rank;    // for messages
    Traffic* traffic;  // counts all links
  };
  TcpExchange(std::vector<Link> links, int rank, const AbortSignal& abort);

  Status run(Plan& plan) override;

 private:
  struct Direction {
    Transfer transfer;
    bool ended = false;
    bool blocked = false;  // the socket had no room or no data when last tried
  };
  struct Connection {
    Link link;
    int peer;
    Direction out, in;
  };
  enum class Moved { kSome, kNothing, kFailed };

  // Each moves one burst, unless the plan says later or the socket is blocked.
  Moved send(Plan& plan, Connection& connection);
  Moved receive(Plan& plan, Connection& connection);
  // What a failed call of the system, or the end of the stream, means for a direction.
  Moved failed(ssize_t result, Connection& connection, Direction& direction);
  // Waits until a blocked direction can go on or the abort signal is raised.
  void wait(int milliseconds);
  void fail(const Connection& connection, int error);

  std::vector<Connection> connections_;  // the peers, starting with the next higher rank
  const AbortSignal& abort_;
  std::vector<pollfd> poll_;
  Status failure_;
  int patience_ = 16;  // looks before sleeping
};

}  // namespace hvd
