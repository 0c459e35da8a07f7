// Moves byte streams between one rank and its peers, all directions at once, on one thread.
//
// A Plan says which memory is sent to and received from each peer next; Exchange does the rest. Nothing is
// framed: both ends agree on the transfers, and never a byte more than the plan asks for is read, so that
// collectives follow each other on the same connection.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "comm/pieces.h"

namespace hvd {

// The next `bytes` from the cursor on, which moves along and must stay valid until the transfer is over.
struct Transfer {
  Cursor* place = nullptr;
  size_t bytes = 0;
};

enum class Next {
  kTransfer,  // here it is
  kLater,     // not before something else has been received
  kEnd,       // nothing more in this collective
};

class Plan {
 public:
  virtual ~Plan() = default;
  // Asked again only when the transfer before was moved entirely.
  virtual Next send(int peer, Transfer& transfer) = 0;
  virtual Next receive(int peer, Transfer& transfer) = 0;
  // The transfer last given by receive() is complete.
  virtual void received(int peer) = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Until the plan has ended in all directions, or the first failure.
  virtual Status run(Plan& plan) = 0;
};

}  // namespace hvd
