// Moves byte streams between one rank and its peers, all directions at once, on one thread.
//
// A Plan says which memory is sent to and received from each peer next; Exchange does the rest. Nothing is
// framed: both ends agree on the stretches, and never a byte more than the plan asks for is read, so that
// collectives follow each other on the same connection.
#pragma once

#include <poll.h>

#include <cstddef>
#include <vector>

#include "base/abort_signal.h"
#include "base/status.h"
#include "comm/pieces.h"

namespace hvd {

// The next `bytes` from the cursor on, which moves along and must stay valid until the stretch is over.
struct Stretch {
  Cursor* place = nullptr;
  size_t bytes = 0;
};

enum class Next {
  kStretch,  // here it is
  kLater,    // not before something else has been received
  kEnd,      // nothing more in this collective
};

class Plan {
 public:
  virtual ~Plan() = default;
  // Asked again only when the stretch before was moved entirely.
  virtual Next send(int peer, Stretch& stretch) = 0;
  virtual Next receive(int peer, Stretch& stretch) = 0;
  // The stretch last given by receive() is complete.
  virtual void received(int peer) = 0;
};

class Exchange {
 public:
  struct Link {
    int fd;          // -1: this rank itself
    int world_rank;  // for messages
  };
  Exchange(std::vector<Link> links, int rank, const AbortSignal& abort);

  // Until the plan has ended in all directions, or the first failure.
  Status run(Plan& plan);

 private:
  struct Direction {
    Stretch stretch;
    bool ended = false;
    bool blocked = false;  // the socket had no room or no data when last tried
  };
  struct Lane {
    Link link;
    int peer;
    Direction out, in;
  };
  enum class Moved { kSome, kNothing, kFailed };

  // Each moves one burst, unless the plan says later or the socket is blocked.
  Moved send(Plan& plan, Lane& lane);
  Moved receive(Plan& plan, Lane& lane);
  // Waits until a blocked direction can go on or the abort signal is raised.
  void wait(int milliseconds);
  void fail(const Lane& lane, int error);

  std::vector<Lane> lanes_;  // the peers, starting with the next higher rank
  const AbortSignal& abort_;
  std::vector<pollfd> poll_;
  Status failure_;
  int patience_ = 16;  // looks before sleeping
};

}  // namespace hvd
