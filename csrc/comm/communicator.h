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

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "base/status.h"
#include "base/types.h"

namespace hvd {

struct Piece {
  void* data;
  size_t bytes;
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

// Owns the channel between all ranks of the world and opens communicators on it. Every communicator must be
// destroyed before its transport.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  // `slot` < kMaxCommunicators identifies the communicator on all ranks; `members` are sorted world ranks
  // that contain this one. A slot used before may be opened again only if every rank of the world called
  // reset(slot) after its last use and before anyone's open, with barriers of the world's communicator before
  // and after.
  virtual std::unique_ptr<Communicator> open(int slot, std::vector<int> members) = 0;
  virtual void reset(int slot) = 0;
};

constexpr int kMaxCommunicators = 256;

std::unique_ptr<Transport> make_local_transport();

// `memory` is the start of shm_bytes(size) bytes that all ranks share, zero at first (a mapped memfd, or in
// tests one mapping for ranks that are threads). The caller keeps it mapped for the transport's life.
size_t shm_bytes(int size);
std::unique_ptr<Transport> make_shm_transport(void* memory, int rank, int size, const AbortSignal& abort);

// peers[r] is a connected stream socket to rank r (own entry -1), owned by the transport from here on. With
// keys, one entry for each rank, everything that is sent over them is encrypted.
struct LinkKeys {
  std::array<uint8_t, 32> send, receive;
};
std::unique_ptr<Transport> make_tcp_transport(std::vector<int> peers, int rank, const AbortSignal& abort,
                                              const std::vector<LinkKeys>& keys = {});

// Shared memory within a host, sockets (`peers`, as for tcp) between hosts: `memory` is the start of
// shm_bytes(n) bytes that the n ranks of this rank's host share, or null if it is alone there; hosts[r] is
// the number of rank r's host. Values are combined host by host, see HierarchicalCommunicator.
std::unique_ptr<Transport> make_hierarchical_transport(void* memory, std::vector<int> hosts,
                                                       std::vector<int> peers, int rank,
                                                       const AbortSignal& abort,
                                                       const std::vector<LinkKeys>& keys = {});

// Messages between the ranks of an MPI communicator, which are those of the world.
class MpiCalls;
std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<MpiCalls> calls, int rank, int size,
                                              const AbortSignal& abort);

}  // namespace hvd
