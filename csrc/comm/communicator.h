// What moves tensor data between the ranks of one process set.
//
// Collectives work on lists of pieces, so that a fused buffer never has to be built: the copy into the
// transport's staging memory is the fusion copy. All ranks call the same collectives in the same order with
// the same sizes (the engine has negotiated them); one thread per engine. Results are the same bits on every
// rank and depend only on the inputs, the reduction, the ranks and their hosts: values are always combined in
// the same order (that of the ranks, if there is one host or one rank on each), whatever the size or the
// cutting.
//
// No call blocks for ever: each ends when the AbortSignal given to the transport is raised and then returns
// its reason. After any failure the transport is unusable and only to be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "hvd.h"

namespace hvd {

struct Piece {
  void* data;
  size_t bytes;
  int32_t device = HVD_CPU;  // whose memory it is; the engine refuses what the transports can't reach
};
using Pieces = std::vector<Piece>;  // read as the concatenation; pieces are whole elements and may be empty

inline size_t total_bytes(const Pieces& pieces) {
  size_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.bytes;
  return sum;
}

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // within this communicator
  virtual int size() const = 0;

  virtual Status barrier() = 0;
  // out[i] has the bytes of in[i] and is either the same memory or disjoint from all of `in`.
  virtual Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) = 0;
  // in[r] is the share that goes to rank r; `out` has the cutting of in[rank()]; disjoint from `in` or the
  // same memory.
  virtual Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                               const Pieces& out) = 0;
  // out[r] receives what rank r sends, its own share included.
  virtual Status allgather(const Pieces& in, const std::vector<Pieces>& out) = 0;
  // The root's data is read, the others' overwritten.
  virtual Status broadcast(const Pieces& data, int root) = 0;
  // in[r] goes to rank r, out[r] comes from rank r, its own share included.
  virtual Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) = 0;
};

}  // namespace hvd
