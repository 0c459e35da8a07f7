// An alltoall over several hosts. What the members of a host have for a member elsewhere meets, through
// shared memory, at the one among them that serves the receiver's lane, and crosses in one message: the
// receiver serves that lane itself. So a rank talks to one rank of each other host.
#include <algorithm>
#include <utility>

#include "comm/chunks.h"
#include "comm/hierarchical/communicator.h"

namespace hvd {

Status HierarchicalCommunicator::alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) {
  if (channels_.flat != nullptr) return channels_.flat->alltoall(in, out);
  Sizes sizes;
  if (Status status = share_sizes(in, sizes); !status.ok()) return status;
  uint64_t leaving = 0, arriving = 0;  // the most from one member to another
  for (const std::vector<uint64_t>& row : sizes)
    leaving = std::max(leaving, *std::max_element(row.begin(), row.end()));
  for (int member = 0; member < size(); ++member)
    if (layout_.host_of(member) != layout_.host())
      arriving = std::max<uint64_t>(arriving, total_bytes(out[member]));
  // All members of a host count the same rounds of what leaves. Beyond those a rank may have more to get.
  const uint32_t rounds_here = chunk_count(leaving, part_bytes_);
  const uint32_t rounds = std::max(rounds_here, chunk_count(arriving, part_bytes_));
  const size_t staged = staged_bytes(sizes);
  if (staging_.size() < 2 * staged) staging_.resize(2 * staged);

  std::vector<Cursor> input = cursors_of(in), output = cursors_of(out);
  const std::vector<size_t> expected = bytes_of(out);
  Status status;
  for (uint32_t round = 0; round < rounds && status.ok(); ++round) {
    Crossing now{std::vector<std::vector<Pieces>>(static_cast<size_t>(layout_.lanes())),
                 std::vector<Pieces>(static_cast<size_t>(layout_.hosts()))};
    each_lane(layout_.local(), [&](int lane) { now.out[lane].resize(static_cast<size_t>(layout_.hosts())); });
    // The former round, which may still be on the network, has the other half.
    std::byte* const place = staging_.data() + round % 2 * staged;
    if (round < rounds_here) status = bring_together(sizes, round, input, output, place, now);
    for (int host = 0; host < layout_.hosts(); ++host) {
      if (host == layout_.host()) continue;
      for (int sender : layout_.members(host))
        append(now.in[host], take(output[sender], Chunk(expected[sender], part_bytes_, round).bytes));
    }
    // Whatever has failed, the network thread must not be left with the caller's memory.
    if (Status crossed = network_->wait(); status.ok()) status = std::move(crossed);
    if (!status.ok()) return status;
    if (round + 1 == rounds) {
      status = cross(now);
    } else {
      network_->start([this, now = std::move(now)] { return cross(now); });
    }
  }
  return status;
}

Status HierarchicalCommunicator::share_sizes(const std::vector<Pieces>& in, Sizes& sizes) {
  std::vector<Pieces> rows;
  for (int local = 0; local < layout_.local_size(); ++local) sizes.emplace_back(in.size());
  for (std::vector<uint64_t>& row : sizes) rows.push_back({{row.data(), row.size() * sizeof row[0]}});
  std::vector<uint64_t>& own = sizes[layout_.local()];
  for (size_t member = 0; member < in.size(); ++member) own[member] = total_bytes(in[member]);
  return channels_.local->allgather(rows[layout_.local()], rows);
}

// A round never needs more than the first one.
size_t HierarchicalCommunicator::staged_bytes(const Sizes& sizes) const {
  size_t sum = 0;
  each_lane(layout_.local(), [&](int lane) {
    each_receiver(lane, [&](int, int receiver) {
      for (const std::vector<uint64_t>& row : sizes) sum += Chunk(row[receiver], part_bytes_, 0).bytes;
    });
  });
  return sum;
}

Status HierarchicalCommunicator::bring_together(const Sizes& sizes, uint32_t round,
                                                std::vector<Cursor>& input, std::vector<Cursor>& output,
                                                std::byte* place, Crossing& crossing) {
  const int own = layout_.local(), local_size = layout_.local_size();
  auto part = [&](int sender, int receiver) {
    return Chunk(sizes[sender][receiver], part_bytes_, round).bytes;
  };
  std::vector<Pieces> leaving(static_cast<size_t>(local_size)), arriving(leaving.size());
  for (int local = 0; local < local_size; ++local) {
    const int neighbour = layout_.members(layout_.host())[local];
    leaving[local] = take(input[neighbour], part(own, neighbour));
    arriving[local] = take(output[neighbour], part(local, rank()));
    each_lane(local, [&](int lane) {
      each_receiver(lane, [&](int, int receiver) {
        append(leaving[local], take(input[receiver], part(own, receiver)));
      });
    });
  }
  each_lane(own, [&](int lane) {
    each_receiver(lane, [&](int host, int receiver) {
      for (int local = 0; local < local_size; ++local) {
        const Piece piece{place, part(local, receiver)};
        place += piece.bytes;
        arriving[local].push_back(piece);
        crossing.out[lane][host].push_back(piece);
      }
    });
  });
  return channels_.local->alltoall(leaving, arriving);
}

// A lane that another host's member has as its own brings nothing here.
Status HierarchicalCommunicator::cross(const Crossing& crossing) {
  const std::vector<Pieces> nothing(crossing.in.size());
  Status status;
  each_lane(layout_.local(), [&](int lane) {
    if (!status.ok()) return;
    status =
        channels_.lanes[lane]->alltoall(crossing.out[lane], lane == layout_.local() ? crossing.in : nothing);
  });
  return status;
}

}  // namespace hvd
