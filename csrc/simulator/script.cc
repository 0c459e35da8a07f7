#include "simulator/script.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "comm/chunks.h"
#include "comm/hierarchical/communicator.h"
#include "comm/hierarchical/grid.h"
#include "comm/mesh/communicator.h"

namespace hvd::simulator {
namespace {

// Writes down what a plan asks for. Of each peer one transfer arrives in a round.
class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(int rank, std::vector<int> members, std::vector<Round>* rounds)
      : rank_(rank), members_(std::move(members)), rounds_(*rounds) {}

  Status run(Plan& plan) override {
    for (bool more = true; more;) {
      Round round;
      more = false;
      each_peer([&](int peer, int rank) {
        Transfer transfer;
        while (plan.send(peer, transfer) == Next::kTransfer) {
          more = true;
          if (transfer.bytes > 0) round.sent.push_back({rank, transfer.bytes});
          transfer.place->advance(transfer.bytes);
        }
      });
      each_peer([&](int peer, int rank) {
        Transfer transfer;
        if (plan.receive(peer, transfer) != Next::kTransfer) return;
        more = true;
        if (transfer.bytes > 0) round.from.push_back(rank);
        transfer.place->advance(transfer.bytes);
        plan.received(peer);
      });
      if (!round.sent.empty() || !round.from.empty()) rounds_.push_back(std::move(round));
    }
    return {};
  }

 private:
  // Everybody starts with another peer, as in TcpExchange.
  template <typename Call>
  void each_peer(Call call) {
    const size_t size = members_.size();
    const auto own =
        static_cast<size_t>(std::find(members_.begin(), members_.end(), rank_) - members_.begin());
    for (size_t i = 1; i < size; ++i) {
      const size_t peer = (own + i) % size;
      call(static_cast<int>(peer), members_[peer]);
    }
  }

  const int rank_;
  const std::vector<int> members_;
  std::vector<Round>& rounds_;
};

// Stands in for the ranks of a host, and for those of a lane: writes down what it is asked to move.
class Recorded final : public Communicator {
 public:
  Recorded(int size, std::vector<Block>* blocks) : size_(size), blocks_(*blocks) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  Status barrier() override { return {}; }
  Status allreduce(const Reduction&, const Pieces& in, const Pieces&) override {
    return note(&Block::exchanged, total_bytes(in));
  }
  Status reducescatter(const Reduction&, const std::vector<Pieces>& in, const Pieces&) override {
    owners_ = 0;
    for (const Pieces& pieces : in) owners_ += total_bytes(pieces) > 0;
    return note(&Block::combined, total_of(in));
  }
  Status allgather(const Pieces&, const std::vector<Pieces>& out) override {
    return note(&Block::shared, total_of(out));
  }
  Status broadcast(const Pieces& data, int) override { return note(&Block::shared, total_bytes(data)); }
  Status alltoall(const std::vector<Pieces>&, const std::vector<Pieces>&) override { return {}; }
  int owners() const { return owners_; }

 private:
  // A field belongs to one thread: that of the network, or the other one.
  Status note(size_t Block::* field, size_t bytes) {
    for (Block& block : blocks_) {
      if (block.*field != 0) continue;
      block.*field = bytes;
      break;
    }
    return {};
  }

  const int size_;
  std::vector<Block>& blocks_;
  int owners_ = 0;
};

// Of no interest, but touched.
std::vector<std::byte>& memory(size_t bytes) {
  static std::vector<std::byte> data;
  if (data.size() < bytes) data.resize(bytes);
  return data;
}

const Reduction kSum{DataType::kFloat32, ReduceOp::kSum, 1.0};

std::vector<Block> record(int hosts, int local, size_t bytes, int* owners) {
  std::vector<int> host_of;
  for (int i = 0; i < hosts * local; ++i) host_of.push_back(i / local);
  std::vector<Block> blocks(bytes / static_cast<size_t>(Tuning().block_bytes) + 1);
  HierarchicalCommunicator::Channels channels;
  auto host = std::make_unique<Recorded>(local, &blocks);
  const Recorded& counted = *host;
  channels.local = std::move(host);
  channels.lanes.resize(static_cast<size_t>(local));
  channels.lanes[0] = std::make_unique<Recorded>(hosts, &blocks);
  std::vector<std::byte> staging;
  const Tuning tuning;
  SideThread network;
  HierarchicalCommunicator all(HierarchicalLayout(host_of, 0), std::move(channels), staging, &network,
                               tuning);
  const Pieces pieces{{memory(bytes).data(), bytes}};
  static_cast<void>(all.allreduce(kSum, pieces, pieces).ok());
  while (blocks.back().combined == 0) blocks.pop_back();
  *owners = counted.owners();
  return blocks;
}

}  // namespace

std::vector<Block> blocks_of(int hosts, int local, size_t bytes) {
  int owners = 0;
  return record(hosts, local, bytes, &owners);
}

int lanes_of(int hosts, int local, size_t bytes) {
  int owners = 0;
  record(hosts, local, bytes, &owners);
  return owners;
}

std::vector<Round> rounds_of(int host, int hosts, int local, size_t bytes) {
  static MeshCommunicator::Shared mesh;
  static std::vector<std::byte> staging;
  std::vector<Round> rounds;
  std::vector<int> lane;
  for (int i = 0; i < hosts; ++i) lane.push_back(i * local);
  const int rank = host * local;
  auto direct = [&](std::vector<int> members) -> std::unique_ptr<Communicator> {
    const auto size = static_cast<int>(members.size());
    int own = 0;
    while (members[static_cast<size_t>(own)] != rank) ++own;
    auto exchange = std::make_unique<RecordedExchange>(rank, std::move(members), &rounds);
    return std::make_unique<MeshCommunicator>(std::move(exchange), own, size, mesh);
  };
  const Pieces pieces{{memory(bytes).data(), bytes}};
  auto all = open_grid(std::move(lane), rank, direct, staging, mesh.tuning);
  static_cast<void>(all->allreduce(kSum, pieces, pieces).ok());
  return rounds;
}

}  // namespace hvd::simulator
