// The exchanges that collectives over a mesh are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/mesh/exchange.h"
#include "comm/pieces.h"

namespace hvd {

// Where a rank's data lies: `bytes` from `place` on.
struct Share {
  Cursor place;
  size_t bytes = 0;
};

// One transfer to and one from each peer, known from the start.
class DirectPlan final : public Plan {
 public:
  // By peer; the own entries are not looked at.
  DirectPlan(std::vector<Share> out, std::vector<Share> in);
  Next send(int peer, Transfer& transfer) override;
  Next receive(int peer, Transfer& transfer) override;
  void received(int) override {}

 private:
  std::vector<Share> out_, in_;
  std::vector<bool> sent_, received_;
};

// Every rank owns a share, gets the others' contributions to it, combines them in rank order and, if there
// are `outputs`, sends the result to all. Contributions and results take turns on each connection, chunk by
// chunk, with results kLag chunks behind, so that both overlap and results are still in the cache when they
// leave.
class ReducePlan final : public Plan {
 public:
  // inputs[r]: this rank's contribution to share r. outputs[r]: where share r's result goes, or empty:
  // `own_output` only. `staging` has size x chunk bytes; chunk is a multiple of the element size.
  ReducePlan(const Reduction& reduction, int rank, const std::vector<Share>& inputs, const Cursor& own_output,
             const std::vector<Share>& outputs, std::byte* staging, size_t chunk);
  Next send(int peer, Transfer& transfer) override;
  Next receive(int peer, Transfer& transfer) override;
  void received(int peer) override;

 private:
  // The agreed order of one direction of a connection.
  struct Turns {
    size_t contributions = 0, results = 0;  // chunks in all
    size_t turn = 0;
    bool result = false;  // whose turn it is
    size_t chunk() const { return result ? turn - kLag : turn; }
    bool find();  // the present turn, or the next one that has a chunk; false: none
    void pass();
  };
  struct Progress {
    Turns out, in;
    Cursor contribution;  // of this rank to the peer's share
    Cursor staged;        // the peer's contribution to this rank's share
    Cursor own_result;    // on its way to the peer
    Cursor result;        // of the peer's share
    bool result_expected = false;
  };
  static constexpr size_t kLag = 1;

  size_t chunk_bytes(int owner, size_t chunk) const {
    return std::min(chunk_, bytes_[owner] - chunk * chunk_);
  }
  void combine();

  const Reduction reduction_;
  const int rank_;
  const size_t chunk_;
  std::byte* const staging_;
  std::vector<size_t> bytes_;  // of each share
  std::vector<Piece> staged_;  // one a peer
  std::vector<Progress> progress_;
  std::vector<std::byte*> sources_;
  Cursor own_input_, own_output_;
  size_t combined_ = 0;  // chunks of the own share
  int arrived_ = 0;      // contributions to the chunk that is next
};

// A broadcast in which the root sends each byte once: a share to each peer, which hands it on to the others.
class RelayPlan final : public Plan {
 public:
  RelayPlan(int rank, int size, int root, const Pieces& data, size_t chunk);
  Next send(int peer, Transfer& transfer) override;
  Next receive(int peer, Transfer& transfer) override;
  void received(int peer) override;

 private:
  struct Progress {
    Share out, in;
    size_t sent = 0;  // bytes given out to be sent
  };

  const int root_;
  const size_t chunk_;
  std::vector<Progress> progress_;
  size_t present_ = 0;   // bytes of the own share, or all of them on the root
  size_t arriving_ = 0;  // bytes of the transfer from the root that is under way
};

}  // namespace hvd
