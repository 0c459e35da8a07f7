#include "comm/hierarchical/communicator.h"

#include <algorithm>
#include <utility>

#include "comm/chunks.h"
#include "comm/course.h"
#include "comm/hierarchical/grid.h"

namespace hvd {

namespace {

// Another member of the host takes part in the exchange with the other hosts for each of these.
constexpr size_t kShareBytes = 8 << 10;
// How much memory the hosts' results of a reducescatter, or what they exchange in an alltoall, may take.
constexpr size_t kStagingBytes = 16 << 20;
constexpr size_t kSmallestRound = 64 << 10;
constexpr size_t kSmallestPart = 16 << 10;
// What a rank sends to one other in a block of an allreduce.
constexpr size_t kSmallestShare = 32 << 10;

// What a host does with its own ranks' values: all but the factor, which is not to be applied twice.
Reduction within_host(Reduction reduction) {
  reduction.factor = 1.0;
  return reduction;
}

// As many bytes in the same cutting, from `memory` on, which moves along.
Pieces same_cutting(const Pieces& pieces, std::byte*& memory) {
  Pieces result;
  for (const Piece& piece : pieces) {
    result.push_back({memory, piece.bytes});
    memory += piece.bytes;
  }
  return result;
}

// The same on all ranks.
size_t round_bytes(const HierarchicalLayout& layout) {
  size_t busiest = 1;  // shares that the busiest rank combines for its host
  for (int host = 0; host < layout.hosts(); ++host) {
    std::vector<size_t> served(static_cast<size_t>(layout.local_size(host)));
    for (int member = 0; member < layout.size(); ++member) {
      busiest = std::max(busiest, ++served[layout.server(host, layout.lane_of(member))]);
    }
  }
  return std::max(kSmallestRound, kStagingBytes / busiest / 64 * 64);
}

// The same on all ranks. In an alltoall the busiest one has a part from each member of its host for each
// receiver of the lanes that it serves, twice.
size_t part_bytes(const HierarchicalLayout& layout) {
  size_t busiest = 1;
  for (int host = 0; host < layout.hosts(); ++host) {
    const int members = layout.local_size(host);
    const int lanes = (layout.lanes() + members - 1) / members;
    busiest = std::max(busiest, static_cast<size_t>(lanes * members * (layout.hosts() - 1)));
  }
  return std::max(kSmallestPart, kStagingBytes / 2 / busiest / 64 * 64);
}

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(HierarchicalLayout layout, Channels channels,
                                                   std::vector<std::byte>& staging, SideThread* network,
                                                   const Tuning& tuning)
    : layout_(std::move(layout)),
      channels_(std::move(channels)),
      round_bytes_(round_bytes(layout_)),
      part_bytes_(part_bytes(layout_)),
      receivers_(static_cast<size_t>(longest_row(layout_.hosts())) *
                 static_cast<size_t>(layout_.complete_lanes())),
      staging_(staging),
      network_(network),
      tuning_(tuning) {}

Status HierarchicalCommunicator::barrier() {
  Status status = channels_.local->barrier();
  if (status.ok() && layout_.serves(0)) status = channels_.lanes[0]->barrier();
  return status.ok() ? channels_.local->barrier() : status;
}

Status HierarchicalCommunicator::allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) {
  const size_t bytes = total_bytes(in);
  if (bytes == 0) return {};
  Cursor input(in), output(out);
  if (network_ != nullptr && bytes >= 2 * block_bytes())
    return allreduce_chunks(reduction, input, output, bytes);
  goes(Algorithm::kHosts);
  const Shared all = cut(input, output, bytes);
  Status status = combine_within_host(reduction, all);
  if (status.ok()) status = exchange(reduction, all, Course::current());
  return status.ok() ? share_out(all) : status;
}

// So long that what goes from one rank to another is not too short, however many there are. In rows that is
// what goes within a row: between rows there is much less, and longer blocks would leave nothing to overlap.
size_t HierarchicalCommunicator::block_bytes() const {
  return std::max(static_cast<size_t>(tuning_.block_bytes), receivers_ * kSmallestShare);
}

// While a chunk is exchanged with the other hosts, the next one is combined within the host and the one
// before is shared out.
Status HierarchicalCommunicator::allreduce_chunks(const Reduction& reduction, Cursor& in, Cursor& out,
                                                  size_t bytes) {
  goes(Algorithm::kBlocks);
  // Long for the network, short for the work within the host.
  const size_t chunks = bytes / block_bytes();
  const size_t length = round_up(chunk_count(bytes, chunks), 64);
  Shared before;
  Status status;
  for (size_t i = 0; i <= chunks && status.ok(); ++i) {
    Shared now;
    if (i < chunks) {
      now = cut(in, out, Chunk(bytes, length, i).bytes);
      status = combine_within_host(reduction, now);
    }
    if (Status exchanged = network_->wait(); status.ok()) status = std::move(exchanged);
    if (status.ok() && i < chunks) {
      network_->start(
          [this, reduction, now, course = Course::current()] { return exchange(reduction, now, course); });
    }
    if (status.ok() && i > 0) status = share_out(before);
    before = std::move(now);
  }
  // Whatever has failed, the network thread must not be left with the caller's memory.
  if (Status exchanged = network_->wait(); status.ok()) status = std::move(exchanged);
  return status;
}

// Some members of each host own a share of the data: they combine the host's values of it, then exchange it
// with the owners on the other hosts.
HierarchicalCommunicator::Shared HierarchicalCommunicator::cut(Cursor& in, Cursor& out, size_t bytes) const {
  const size_t owners =
      std::clamp<size_t>(bytes / kShareBytes, 1, static_cast<size_t>(layout_.complete_lanes()));
  const size_t share = round_up(chunk_count(bytes, owners), 64);
  const auto members = static_cast<size_t>(layout_.local_size());
  Shared shared{owners, bytes, std::vector<Pieces>(members), std::vector<Pieces>(members)};
  for (size_t i = 0; i < owners; ++i) {
    const size_t length = Chunk(bytes, share, i).bytes;
    shared.inputs[i] = take(in, length);
    shared.outputs[i] = take(out, length);
  }
  return shared;
}

Status HierarchicalCommunicator::combine_within_host(const Reduction& reduction, const Shared& shared) {
  Phased phased(Course::current(), Phase::kWithinHost, shared.bytes);
  return channels_.local->reducescatter(within_host(reduction), shared.inputs,
                                        shared.outputs[layout_.local()]);
}

Status HierarchicalCommunicator::exchange(const Reduction& reduction, const Shared& shared, Course* course) {
  const auto own = static_cast<size_t>(layout_.local());
  if (own >= shared.owners) return {};
  Phased phased(course, Phase::kNetwork, total_bytes(shared.outputs[own]));
  return channels_.lanes[own]->allreduce(reduction, shared.outputs[own], shared.outputs[own]);
}

Status HierarchicalCommunicator::share_out(const Shared& shared) {
  Phased phased(Course::current(), Phase::kShareOut, shared.bytes);
  if (shared.owners > 1) return channels_.local->allgather(shared.outputs[layout_.local()], shared.outputs);
  return channels_.local->broadcast(shared.outputs[0], 0);
}

Status HierarchicalCommunicator::reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                                               const Pieces& out) {
  goes(Algorithm::kHosts);
  const std::vector<size_t> bytes = bytes_of(in);
  const uint32_t rounds = chunk_count(largest_of(in), round_bytes_);
  std::vector<Cursor> input = cursors_of(in);
  Cursor output(out);
  Status status;
  for (uint32_t round = 0; round < rounds && status.ok(); ++round) {
    std::vector<size_t> now;
    for (size_t share : bytes) now.push_back(Chunk(share, round_bytes_, round).bytes);
    status = reducescatter_round(reduction, input, output, now);
  }
  return status;
}

// A host's results of the shares of one lane go to the member that serves the lane, and on it to the other
// hosts.
Status HierarchicalCommunicator::reducescatter_round(const Reduction& reduction, std::vector<Cursor>& in,
                                                     Cursor& out, const std::vector<size_t>& bytes) {
  const int local_size = layout_.local_size();
  std::vector<Pieces> inputs(static_cast<size_t>(local_size));
  std::vector<std::vector<Pieces>> results(
      static_cast<size_t>(layout_.lanes()));  // [lane][host], to be staged
  size_t staged = 0;
  for (int local = 0; local < local_size; ++local) {
    each_lane(local, [&](int lane) {
      results[lane].resize(static_cast<size_t>(layout_.hosts()));
      for (int host = 0; host < layout_.hosts(); ++host) {
        const int owner = layout_.owner(host, lane);
        if (owner < 0) continue;
        results[lane][host] = take(in[owner], bytes[owner]);
        append(inputs[local], results[lane][host]);
        if (local == layout_.local()) staged += bytes[owner];
      }
    });
  }
  if (staging_.size() < staged) staging_.resize(staged);
  std::byte* place = staging_.data();
  Pieces combined;
  each_lane(layout_.local(), [&](int lane) {
    for (Pieces& result : results[lane]) {
      result = same_cutting(result, place);
      append(combined, result);
    }
  });
  Status status = channels_.local->reducescatter(within_host(reduction), inputs, combined);
  each_lane(layout_.local(), [&](int lane) {
    if (!status.ok()) return;
    const bool own = lane == layout_.local();
    status = channels_.lanes[lane]->reducescatter(reduction, results[lane],
                                                  own ? take(out, bytes[layout_.rank()]) : Pieces());
  });
  return status;
}

// On each lane the hosts exchange what its owners send, then the members of a host share what they got.
Status HierarchicalCommunicator::allgather(const Pieces& in, const std::vector<Pieces>& out) {
  goes(Algorithm::kHosts);
  std::vector<Pieces> gathered(static_cast<size_t>(layout_.local_size()));
  Status status;
  for (int local = 0; local < layout_.local_size(); ++local) {
    each_lane(local, [&](int lane) {
      std::vector<Pieces> arriving(static_cast<size_t>(layout_.hosts()));
      for (int host = 0; host < layout_.hosts(); ++host) {
        const int owner = layout_.owner(host, lane);
        if (owner < 0) continue;
        arriving[host] = out[owner];
        append(gathered[local], out[owner]);
      }
      if (local != layout_.local() || !status.ok()) return;
      status = channels_.lanes[lane]->allgather(lane == local ? in : Pieces(), arriving);
    });
  }
  return status.ok() ? channels_.local->allgather(gathered[layout_.local()], gathered) : status;
}

Status HierarchicalCommunicator::broadcast(const Pieces& data, int root) {
  goes(Algorithm::kHosts);
  const int lane = layout_.lane_of(root);
  if (layout_.serves(lane)) {
    if (Status status = channels_.lanes[lane]->broadcast(data, layout_.host_of(root)); !status.ok())
      return status;
  }
  return channels_.local->broadcast(data, layout_.server(layout_.host(), lane));
}

}  // namespace hvd
