// Collectives over several hosts: shared memory within each, sockets between them, so that what all ranks of
// a host need or contribute to crosses the network once.
//
// Values are combined in two levels, whatever the size: those of a host in rank order, rounded to the element
// type, then the hosts' results in the order of the hosts.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/course.h"
#include "comm/hierarchical/layout.h"
#include "comm/hierarchical/side_thread.h"
#include "comm/pieces.h"
#include "comm/tuning.h"

namespace hvd {

class HierarchicalCommunicator final : public Communicator {
 public:
  struct Channels {
    std::unique_ptr<Communicator> local;  // the members on this host
    // In host order; null unless this rank serves the lane. Who has nothing to send or to get in an alltoall
    // on a lane leaves it out.
    std::vector<std::unique_ptr<Communicator>> lanes;
    std::unique_ptr<Communicator> flat;  // if there is one, for an alltoall of all members
  };
  // `staging`, which grows when needed, and `network` belong to the transport and serve one collective at a
  // time; `tuning` may change from one to the next. Without `network` (null) nothing overlaps: then the
  // channels may share memory.
  HierarchicalCommunicator(HierarchicalLayout layout, Channels channels, std::vector<std::byte>& staging,
                           SideThread* network, const Tuning& tuning);

  int rank() const override { return layout_.rank(); }
  int size() const override { return layout_.size(); }
  Status barrier() override;
  Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) override;
  Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in, const Pieces& out) override;
  Status allgather(const Pieces& in, const std::vector<Pieces>& out) override;
  Status broadcast(const Pieces& data, int root) override;
  Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) override;

 private:
  // A chunk of an allreduce, by member of this host; only the first `owners` have a share.
  struct Shared {
    size_t owners = 0, bytes = 0;
    std::vector<Pieces> inputs, outputs;
  };
  Status allreduce_chunks(const Reduction& reduction, Cursor& in, Cursor& out, size_t bytes);
  size_t block_bytes() const;
  Shared cut(Cursor& in, Cursor& out, size_t bytes) const;  // the next `bytes`, moving the cursors
  Status combine_within_host(const Reduction& reduction, const Shared& shared);
  Status exchange(const Reduction& reduction, const Shared& shared, Course* course);
  Status share_out(const Shared& shared);
  // The next bytes[r] of each rank's share, moving the cursors.
  Status reducescatter_round(const Reduction& reduction, std::vector<Cursor>& in, Cursor& out,
                             const std::vector<size_t>& bytes);
  // Of an alltoall: [local member][receiver], in bytes.
  using Sizes = std::vector<std::vector<uint64_t>>;
  // A round of it between the hosts: out[lane][host] and in[host].
  struct Crossing {
    std::vector<std::vector<Pieces>> out;
    std::vector<Pieces> in;
  };
  Status share_sizes(const std::vector<Pieces>& in, Sizes& sizes);
  size_t staged_bytes(const Sizes& sizes) const;
  // The next parts of what the members of this host have for each other and, from `place` on, for others.
  Status bring_together(const Sizes& sizes, uint32_t round, std::vector<Cursor>& input,
                        std::vector<Cursor>& output, std::byte* place, Crossing& crossing);
  Status cross(const Crossing& crossing);
  // Calls visit(host, member) for those on other hosts whose own lane this is.
  template <typename Visit>
  void each_receiver(int lane, Visit visit) const {
    for (int host = 0; host < layout_.hosts(); ++host)
      if (host != layout_.host() && layout_.owner(host, lane) >= 0) visit(host, layout_.owner(host, lane));
  }
  // Calls visit(lane) for the lanes that the local member serves, ascending.
  template <typename Visit>
  void each_lane(int local, Visit visit) const {
    for (int lane = local; lane < layout_.lanes(); lane += layout_.local_size()) visit(lane);
  }

  const HierarchicalLayout layout_;
  const Channels channels_;
  const size_t round_bytes_;  // of each rank's share in a round of reducescatter
  const size_t part_bytes_;   // from one member to another in a round of alltoall
  const size_t receivers_;    // of a host's longest messages in a block of an allreduce
  std::vector<std::byte>& staging_;
  SideThread* const network_;
  const Tuning& tuning_;
};

}  // namespace hvd
