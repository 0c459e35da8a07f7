// One collective of each kind on a communicator, checked on each rank against the kernel called on whole
// buffers; the number of the operation makes the data.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "tests/check.h"
#include "tests/comm_suite.h"

namespace suite {

using hvd::ReduceOp;

inline uint64_t seed_of(uint64_t operation, int rank) { return operation * 1000 + rank; }

// What the ranks' inputs make together: the kernel called once, or what else a transport promises.
using Combine = std::function<Bytes(const Reduction&, const std::vector<Bytes>&)>;

inline void check_allreduce(Communicator& comm, const Reduction& reduction, size_t count, uint64_t operation,
                            const Combine& combine = reduced) {
  const size_t element = hvd::size_of(reduction.type);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(values(reduction.type, count, seed_of(operation, rank)));
  const Bytes expected = combine(reduction, inputs);
  // The cutting is each rank's own: it must not matter.
  Random random(seed_of(operation, comm.rank()));
  std::vector<size_t> lengths = cut(random, count * element, element);
  // Nor where its memory is: everyone's, or only some, in the heap.
  Random shared(operation);
  const bool everyone = pick(shared, 2) == 0;
  auto heap = [&] { return everyone || pick(random, 2) == 0 ? own_heap : nullptr; };
  Buffer in(lengths, element, inputs[comm.rank()], heap());
  if (pick(random, 2) == 0) {
    CHECK(comm.allreduce(reduction, in.pieces(), in.pieces()).ok());
    CHECK(in.holds(expected));
  } else {
    Buffer out(lengths, element, heap());
    CHECK(comm.allreduce(reduction, in.pieces(), out.pieces()).ok());
    CHECK(out.holds(expected));
    CHECK(in.holds(inputs[comm.rank()]));
  }
}

inline void check_reducescatter(Communicator& comm, const Reduction& reduction, size_t count,
                                uint64_t operation, const Combine& combine = reduced) {
  const size_t element = hvd::size_of(reduction.type);
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<Buffer> in;
  std::vector<Pieces> pieces;
  std::vector<Bytes> own_inputs;  // all ranks', of this rank's share
  std::vector<size_t> own_lengths;
  for (int share = 0; share < comm.size(); ++share) {
    const size_t elements = pick(shared, 2 * count / comm.size() + 1);
    auto input = [&](int rank) {
      return values(reduction.type, elements, seed_of(operation, rank) + 17 * share);
    };
    const std::vector<size_t> lengths = cut(random, elements * element, element);
    in.emplace_back(lengths, element, input(comm.rank()));
    pieces.push_back(in.back().pieces());
    if (share != comm.rank()) continue;
    own_lengths = lengths;
    for (int rank = 0; rank < comm.size(); ++rank) own_inputs.push_back(input(rank));
  }
  const Bytes expected = combine(reduction, own_inputs);
  if (pick(random, 2) == 0) {
    CHECK(comm.reducescatter(reduction, pieces, pieces[comm.rank()]).ok());
    CHECK(in[comm.rank()].holds(expected));
  } else {
    Buffer out(own_lengths, element);
    CHECK(comm.reducescatter(reduction, pieces, out.pieces()).ok());
    CHECK(out.holds(expected));
    CHECK(in[comm.rank()].holds(own_inputs[comm.rank()]));
  }
}

inline void check_allgather(Communicator& comm, size_t bytes, uint64_t operation) {
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<Bytes> contents;
  std::vector<Buffer> out;
  std::vector<Pieces> pieces;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const size_t length = pick(shared, 4) == 0 ? 0 : pick(shared, bytes + 1);
    contents.push_back(noise(length, seed_of(operation, rank)));
    out.emplace_back(cut(random, length, 1), 1);
    pieces.push_back(out.back().pieces());
  }
  const Bytes& own = contents[comm.rank()];
  if (pick(random, 2) == 0) {
    Buffer in(cut(random, own.size(), 1), 1, own);
    CHECK(comm.allgather(in.pieces(), pieces).ok());
  } else {
    out[comm.rank()] = contiguous(own);
    pieces[comm.rank()] = out[comm.rank()].pieces();
    CHECK(comm.allgather(pieces[comm.rank()], pieces).ok());
  }
  for (int rank = 0; rank < comm.size(); ++rank) CHECK(out[rank].holds(contents[rank]));
}

// As many bytes of every rank.
inline void check_allgather_in_place(Communicator& comm, size_t bytes, uint64_t operation) {
  std::vector<Bytes> contents;
  std::vector<Buffer> out;
  std::vector<Pieces> pieces;
  for (int rank = 0; rank < comm.size(); ++rank) {
    contents.push_back(noise(bytes, seed_of(operation, rank)));
    out.push_back(rank == comm.rank() ? contiguous(contents[rank]) : Buffer({bytes}, 1));
    pieces.push_back(out.back().pieces());
  }
  CHECK(comm.allgather(pieces[comm.rank()], pieces).ok());
  for (int rank = 0; rank < comm.size(); ++rank) CHECK(out[rank].holds(contents[rank]));
}

inline void check_broadcast(Communicator& comm, size_t bytes, int root, uint64_t operation) {
  Bytes content = noise(bytes, operation);
  Random random(seed_of(operation, comm.rank()));
  std::vector<size_t> lengths = cut(random, bytes, 1);
  Buffer data = comm.rank() == root ? Buffer(lengths, 1, content) : Buffer(lengths, 1);
  CHECK(comm.broadcast(data.pieces(), root).ok());
  CHECK(data.holds(content));
}

inline void check_alltoall(Communicator& comm, size_t bytes, uint64_t operation) {
  Random shared(operation), random(seed_of(operation, comm.rank()));
  const int size = comm.size();
  std::vector<size_t> sizes;  // [from * size + to]
  for (int i = 0; i < size * size; ++i) sizes.push_back(pick(shared, 4) == 0 ? 0 : pick(shared, bytes + 1));
  // Now and then one rank has much and the others little.
  if (pick(shared, 3) == 0) sizes[pick(shared, sizes.size())] += 300000;
  auto content = [&](int from, int to) {
    return noise(sizes[from * size + to], seed_of(operation, from) + 31 * to);
  };
  std::vector<Buffer> in, out;
  std::vector<Pieces> in_pieces, out_pieces;
  for (int peer = 0; peer < size; ++peer) {
    Bytes sent = content(comm.rank(), peer);
    in.emplace_back(cut(random, sent.size(), 1), 1, sent);
    out.emplace_back(cut(random, sizes[peer * size + comm.rank()], 1), 1);
    in_pieces.push_back(in.back().pieces());
    out_pieces.push_back(out.back().pieces());
  }
  CHECK(comm.alltoall(in_pieces, out_pieces).ok());
  for (int peer = 0; peer < size; ++peer) CHECK(out[peer].holds(content(peer, comm.rank())));
}

inline Reduction average(DataType type, int size) {
  if (type == DataType::kBool) return {type, ReduceOp::kMin, 1.0};
  return {type, ReduceOp::kSum, 1.0 / size};
}

// A round of all kinds, with sizes that differ so much that every path follows every other.
inline void random_operation(Communicator& comm, size_t bytes, uint64_t operation,
                             const Combine& combine = reduced) {
  Random shared(operation);
  const auto type = static_cast<DataType>(pick(shared, hvd::kDataTypes));
  const size_t count = bytes / hvd::size_of(type);
  const bool plain = pick(shared, 2) == 0;
  switch (pick(shared, 6)) {
    case 0:
      CHECK(comm.barrier().ok());
      break;
    case 1:
      check_allreduce(comm, plain ? Reduction{type, ReduceOp::kSum, 1.0} : average(type, comm.size()), count,
                      operation, combine);
      break;
    case 2:
      check_reducescatter(comm, {type, plain ? ReduceOp::kSum : ReduceOp::kMax, 1.0}, count, operation,
                          combine);
      break;
    case 3:
      check_allgather(comm, bytes / comm.size(), operation);
      break;
    case 4:
      check_broadcast(comm, bytes, static_cast<int>(pick(shared, comm.size())), operation);
      break;
    case 5:
      check_alltoall(comm, bytes / comm.size(), operation);
      break;
  }
}

inline size_t random_bytes(Random& random) {
  constexpr size_t kLimits[] = {1, 120, 130, 5000, 40000, 200000};
  return pick(random, kLimits[pick(random, std::size(kLimits))] + 1);
}

}  // namespace suite
