#include "comm/mesh/communicator.h"

#include <algorithm>
#include <utility>

#include "comm/chunks.h"
#include "comm/course.h"

namespace hvd {

namespace {

// What every rank sends whole to all, in one message each instead of two, may be so much more over all ranks.
constexpr size_t kWholeRanks = 8;
// So little of so many ranks goes to one of them and back: that is 2n messages in all instead of n², and each
// costs more than its bytes.
constexpr size_t kOneOwnerBytes = 4 << 10;
constexpr int kOneOwnerRanks = 9;
constexpr size_t kRelayBytes = 128 << 10;  // from here on a broadcast is relayed
constexpr size_t kStagingBytes = 32 << 20;

Share share_of(const Pieces& pieces) { return {Cursor(pieces), total_bytes(pieces)}; }

std::vector<Share> shares_of(const std::vector<Pieces>& lists) {
  std::vector<Share> shares;
  for (const Pieces& pieces : lists) shares.push_back(share_of(pieces));
  return shares;
}

// Equal shares of whole elements for the first ranks, which own something, and none for the others.
std::vector<Share> split(const Pieces& pieces, size_t bytes, size_t element, int size, int owners) {
  std::vector<Share> shares;
  Cursor place(pieces);
  const size_t elements = bytes / element;
  for (int i = 0; i < size; ++i) {
    const bool more = static_cast<size_t>(i) < elements % owners;
    const size_t share = i < owners ? (elements / owners + (more ? 1 : 0)) * element : 0;
    shares.push_back({place, share});
    place.advance(share);
  }
  return shares;
}

}  // namespace

MeshCommunicator::MeshCommunicator(std::unique_ptr<Exchange> exchange, int rank, int size, Shared& shared)
    : rank_(rank), size_(size), shared_(shared), exchange_(std::move(exchange)) {}

size_t MeshCommunicator::staging_chunk() const { return std::min(chunk(), kStagingBytes / size_ / 64 * 64); }

std::byte* MeshCommunicator::staging(size_t bytes) {
  if (shared_.staging.size() < bytes) shared_.staging.resize(bytes);
  return shared_.staging.data();
}

Status MeshCommunicator::direct(std::vector<Share> out, std::vector<Share> in) {
  DirectPlan plan(std::move(out), std::move(in));
  return exchange_->run(plan);
}

Status MeshCommunicator::barrier() {
  std::byte out{}, in{};
  Piece sent = {&out, 1}, received = {&in, 1};
  return direct(std::vector<Share>(size_, {Cursor(&sent, 1), 1}),
                std::vector<Share>(size_, {Cursor(&received, 1), 1}));
}

Status MeshCommunicator::allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) {
  size_t bytes = total_bytes(in);
  if (bytes == 0) return {};
  const auto limit = static_cast<size_t>(shared_.tuning.whole_bytes);
  const bool one_owner = size_ >= kOneOwnerRanks && bytes <= kOneOwnerBytes;
  const bool whole = !one_owner && bytes <= limit && bytes * size_ <= kWholeRanks * limit;
  goes(whole ? Algorithm::kWhole : Algorithm::kShared);
  if (whole) return allreduce_whole(reduction, in, out, bytes);
  return allreduce_shared(reduction, in, out, bytes, one_owner ? 1 : size_);
}

Status MeshCommunicator::allreduce_whole(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                         size_t bytes) {
  // Each copy begins on a cache line of its own.
  const size_t stride = (bytes + 63) / 64 * 64;
  std::byte* memory = staging(stride * size_);
  std::vector<Piece> copies(size_);
  std::vector<Share> received;
  std::vector<std::byte*> sources;
  for (int i = 0; i < size_; ++i) {
    copies[i] = {memory + i * stride, bytes};
    received.push_back({Cursor(&copies[i], 1), bytes});
    sources.push_back(static_cast<std::byte*>(copies[i].data));
  }
  if (Status status = direct(std::vector<Share>(size_, share_of(in)), std::move(received)); !status.ok())
    return status;
  Cursor from(in), to(out);
  reduce(reduction, from, rank_, sources, -1, to, bytes);
  return {};
}

Status MeshCommunicator::allreduce_shared(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                          size_t bytes, int owners) {
  const size_t element = size_of(reduction.type);
  std::vector<Share> outputs = split(out, bytes, element, size_, owners);
  // Of a few bytes there is no more than one chunk: many ranks would clear megabytes for it.
  const size_t chunk = std::min(staging_chunk(), round_up(outputs[0].bytes, 64));
  ReducePlan plan(reduction, rank_, split(in, bytes, element, size_, owners), outputs[rank_].place, outputs,
                  staging(chunk * size_), chunk);
  return exchange_->run(plan);
}

Status MeshCommunicator::reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                                       const Pieces& out) {
  goes(Algorithm::kShared);
  const size_t chunk = staging_chunk();
  ReducePlan plan(reduction, rank_, shares_of(in), Cursor(out), {}, staging(chunk * size_), chunk);
  return exchange_->run(plan);
}

Status MeshCommunicator::allgather(const Pieces& in, const std::vector<Pieces>& out) {
  goes(Algorithm::kDirect);
  copy(in, out[rank_]);
  return direct(std::vector<Share>(size_, share_of(in)), shares_of(out));
}

Status MeshCommunicator::broadcast(const Pieces& data, int root) {
  Share all = share_of(data);
  const bool relayed = size_ > 2 && all.bytes >= kRelayBytes;
  goes(relayed ? Algorithm::kRelayed : Algorithm::kDirect);
  if (relayed) {
    RelayPlan plan(rank_, size_, root, data, chunk());
    return exchange_->run(plan);
  }
  std::vector<Share> out(size_), in(size_);
  if (rank_ == root) {
    std::fill(out.begin(), out.end(), all);
  } else {
    in[root] = all;
  }
  return direct(std::move(out), std::move(in));
}

Status MeshCommunicator::alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) {
  goes(Algorithm::kDirect);
  copy(in[rank_], out[rank_]);
  return direct(shares_of(in), shares_of(out));
}

}  // namespace hvd
