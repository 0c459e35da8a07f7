#include "comm/transport.h"

#include <algorithm>
#include <set>
#include <utility>

#include "comm/hierarchical/communicator.h"
#include "comm/single/communicator.h"

namespace hvd {

namespace {

// Shared memory for the ranks of this host, sockets for all ranks.
class HierarchicalTransport final : public Transport {
 public:
  HierarchicalTransport(void* memory, std::vector<int> hosts, const std::vector<int>& mesh_fds, int rank,
                        const AbortSignal& abort, const std::vector<LinkKeys>& keys,
                        std::shared_ptr<SharedHeap> heap, int streams)
      : hosts_(std::move(hosts)),
        rank_(rank),
        tcp_(make_tcp_transport(mesh_fds, rank, abort, keys, streams)) {
    const auto local_size = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_[rank]));
    if (local_size > 1)
      shm_ = make_shm_transport(memory, local_rank(rank), local_size, abort, std::move(heap));
  }

  const char* name() const override { return "hierarchical"; }
  const Traffic* traffic() const override { return tcp_->traffic(); }

  std::unique_ptr<Communicator> open(int id, std::vector<int> members) override {
    std::vector<int> hosts;
    for (int member : members) hosts.push_back(hosts_[member]);
    const auto own = std::find(members.begin(), members.end(), rank_) - members.begin();
    HierarchicalLayout layout(hosts, static_cast<int>(own));
    if (layout.hosts() == 1) return open_local(id, members);
    if (layout.lanes() == 1) return tcp_->open(id, std::move(members));

    auto ranks = [&](std::vector<int> indices) {
      for (int& index : indices) index = members[index];
      return indices;
    };
    HierarchicalCommunicator::Channels channels;
    channels.local = open_local(id, ranks(layout.members(layout.host())));
    for (int lane = 0; lane < layout.lanes(); ++lane) {
      // In host order, which need not be that of the ranks: sockets have no order of their own.
      channels.lanes.push_back(layout.serves(lane) ? tcp_->open(id, ranks(layout.lane_members(lane)))
                                                   : nullptr);
    }
    return std::make_unique<HierarchicalCommunicator>(std::move(layout), std::move(channels), staging_,
                                                      &network_, tuning_);
  }

  Status connect(int peer, int fd, const LinkKeys* keys) override { return tcp_->connect(peer, fd, keys); }

  void reset(int id) override {
    if (shm_ != nullptr) shm_->reset(id);
    tcp_->reset(id);
  }

  void tune(const Tuning& tuning) override {
    if (shm_ != nullptr) shm_->tune(tuning);
    tcp_->tune(tuning);
    tuning_ = tuning;
  }
  unsigned tuned_parts() const override {
    const bool alone = std::set<int>(hosts_.begin(), hosts_.end()).size() == hosts_.size();
    return alone ? kTunesMesh : kTunesShm | kTunesMesh | kTunesHosts;
  }

 private:
  // The index of a rank among those of its host.
  int local_rank(int rank) const {
    return static_cast<int>(std::count(hosts_.begin(), hosts_.begin() + rank, hosts_[rank]));
  }
  std::unique_ptr<Communicator> open_local(int id, std::vector<int> members) {
    if (members.size() == 1) return make_single_communicator();
    for (int& member : members) member = local_rank(member);
    return shm_->open(id, std::move(members));
  }

  const std::vector<int> hosts_;
  const int rank_;
  std::unique_ptr<Transport> tcp_;
  std::unique_ptr<Transport> shm_;  // null: this rank is alone on its host
  std::vector<std::byte> staging_;
  SideThread network_;
  Tuning tuning_;
};

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(void* memory, std::vector<int> hosts,
                                                       const std::vector<int>& mesh_fds, int rank,
                                                       const AbortSignal& abort,
                                                       const std::vector<LinkKeys>& keys,
                                                       std::shared_ptr<SharedHeap> heap, int streams) {
  return std::make_unique<HierarchicalTransport>(memory, std::move(hosts), mesh_fds, rank, abort, keys,
                                                 std::move(heap), streams);
}

}  // namespace hvd
