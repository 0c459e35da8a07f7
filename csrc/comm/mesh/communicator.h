// Collectives over a mesh of stream sockets or MPI messages. Every rank talks directly to every other; the
// bytes on the wire are those of a ring, but values are combined in rank order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/mesh/exchange.h"
#include "comm/mesh/plans.h"
#include "comm/tuning.h"

namespace hvd {

class MeshCommunicator final : public Communicator {
 public:
  // What a transport shares among its communicators: memory that serves one collective at a time and grows
  // when needed, and how they cut their data.
  struct Shared {
    std::vector<std::byte> staging;
    Tuning tuning;
    size_t least_chunk = 0;  // of what is combined, or handed on, at a time
  };
  MeshCommunicator(std::unique_ptr<Exchange> exchange, int rank, int size, Shared& shared);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status barrier() override;
  Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) override;
  Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in, const Pieces& out) override;
  Status allgather(const Pieces& in, const std::vector<Pieces>& out) override;
  Status broadcast(const Pieces& data, int root) override;
  Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) override;

 private:
  Status allreduce_whole(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes);
  Status allreduce_shared(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes,
                          int owners);
  Status direct(std::vector<Share> out, std::vector<Share> in);
  std::byte* staging(size_t bytes);
  size_t chunk() const {
    return std::max(static_cast<size_t>(shared_.tuning.mesh_chunk), shared_.least_chunk);
  }
  size_t staging_chunk() const;  // shrinks with many ranks

  const int rank_;
  const int size_;
  Shared& shared_;
  const std::unique_ptr<Exchange> exchange_;
};

}  // namespace hvd
