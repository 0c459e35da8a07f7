#include "simulator/script.h"

#include <functional>
#include <memory>
#include <utility>

#include "comm/hierarchical/communicator.h"
#include "comm/hierarchical/grid.h"
#include "comm/mesh/communicator.h"

namespace hvd::simulator {
namespace {

// Writes down what a plan asks for. Of each peer one transfer arrives in a round.
class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(int rank, std::vector<int> members, std::vector<Block>* blocks, const size_t* block)
      : rank_(rank), members_(std::move(members)), blocks_(*blocks), block_(*block) {}

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
      if (!round.sent.empty() || !round.from.empty()) blocks_[block_].rounds.push_back(std::move(round));
    }
    return {};
  }

 private:
  template <typename Call>
  void each_peer(Call call) {
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i] != rank_) call(static_cast<int>(i), members_[i]);
  }

  const int rank_;
  const std::vector<int> members_;
  std::vector<Block>& blocks_;
  const size_t& block_;
};

// Stands in for shared memory, and counts the blocks.
class RecordedHost final : public Communicator {
 public:
  RecordedHost(int rank, int size, std::vector<Block>* blocks) : rank_(rank), size_(size), blocks_(*blocks) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status barrier() override { return {}; }
  Status allreduce(const Reduction&, const Pieces&, const Pieces&) override { return {}; }
  Status reducescatter(const Reduction&, const std::vector<Pieces>& in, const Pieces&) override {
    size_t bytes = 0;
    for (const Pieces& pieces : in) bytes += total_bytes(pieces);
    blocks_[combined_++].combined = bytes;
    return {};
  }
  Status allgather(const Pieces&, const std::vector<Pieces>& out) override {
    for (const Pieces& pieces : out) blocks_[shared_].shared += total_bytes(pieces);
    ++shared_;
    return {};
  }
  Status broadcast(const Pieces& data, int) override {
    blocks_[shared_++].shared = total_bytes(data);
    return {};
  }
  Status alltoall(const std::vector<Pieces>&, const std::vector<Pieces>&) override { return {}; }
  size_t count() const { return combined_; }

 private:
  const int rank_, size_;
  std::vector<Block>& blocks_;
  size_t combined_ = 0, shared_ = 0;
};

// Notices which block is exchanged.
class RecordedLane final : public Communicator {
 public:
  RecordedLane(std::unique_ptr<Communicator> lane, size_t* block) : lane_(std::move(lane)), block_(*block) {}
  int rank() const override { return lane_->rank(); }
  int size() const override { return lane_->size(); }
  Status barrier() override { return lane_->barrier(); }
  Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) override {
    Status status = lane_->allreduce(reduction, in, out);
    ++block_;
    return status;
  }
  Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                       const Pieces& out) override {
    return lane_->reducescatter(reduction, in, out);
  }
  Status allgather(const Pieces& in, const std::vector<Pieces>& out) override {
    return lane_->allgather(in, out);
  }
  Status broadcast(const Pieces& data, int root) override { return lane_->broadcast(data, root); }
  Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) override {
    return lane_->alltoall(in, out);
  }

 private:
  const std::unique_ptr<Communicator> lane_;
  size_t& block_;
};

}  // namespace

std::vector<Block> script_of(int rank, int hosts, int local, size_t bytes) {
  static std::vector<std::byte> data, staging;  // of no interest, but touched: kept from one call to the next
  static MeshCommunicator::Shared mesh;
  if (data.size() < bytes) data.resize(bytes);
  constexpr size_t kSmallestBlock = 8 << 20;
  std::vector<Block> blocks(bytes / kSmallestBlock + 1);
  if (hosts == 1) {
    blocks[0].combined = bytes;
    return blocks;
  }
  std::vector<int> host_of;
  for (int i = 0; i < hosts * local; ++i) host_of.push_back(i / local);
  HierarchicalLayout layout(host_of, rank);
  auto host = std::make_unique<RecordedHost>(layout.local(), local, &blocks);
  const RecordedHost& counted = *host;
  size_t exchanged = 0;
  auto direct = [&](std::vector<int> members) -> std::unique_ptr<Communicator> {
    const auto size = static_cast<int>(members.size());
    int own = 0;
    while (members[static_cast<size_t>(own)] != rank) ++own;
    auto exchange = std::make_unique<RecordedExchange>(rank, std::move(members), &blocks, &exchanged);
    return std::make_unique<MeshCommunicator>(std::move(exchange), own, size, mesh);
  };
  HierarchicalCommunicator::Channels channels;
  channels.local = std::move(host);
  for (int lane = 0; lane < layout.lanes(); ++lane) {
    channels.lanes.push_back(nullptr);
    if (layout.serves(lane))
      channels.lanes.back() = std::make_unique<RecordedLane>(
          open_grid(layout.lane_members(lane), rank, direct, staging, mesh.tuning), &exchanged);
  }
  SideThread network;
  HierarchicalCommunicator all(std::move(layout), std::move(channels), staging, &network, mesh.tuning);
  const Pieces pieces{{data.data(), bytes}};
  static_cast<void>(all.allreduce({DataType::kFloat32, ReduceOp::kSum, 1.0}, pieces, pieces).ok());
  blocks.resize(counted.count());
  return blocks;
}

}  // namespace hvd::simulator
