// Every collective on every transport, against the kernel called once on whole buffers.
#include <netinet/tcp.h>

#include <algorithm>
#include <string>

#include "comm/communicator.h"
#include "comm/pieces.h"
#include "tests/check.h"
#include "tests/comm_suite.h"

namespace {

using namespace suite;
using hvd::ReduceOp;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};

uint64_t seed_of(uint64_t operation, int rank) { return operation * 1000 + rank; }

// ---- one operation of each kind, checked on each rank; `operation` makes the data

void check_allreduce(Communicator& comm, const Reduction& reduction, size_t count, uint64_t operation) {
  const size_t element = hvd::size_of(reduction.type);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(values(reduction.type, count, seed_of(operation, rank)));
  Bytes expected = reduced(reduction, inputs);
  // The cutting is each rank's own: it must not matter.
  Random random(seed_of(operation, comm.rank()));
  std::vector<size_t> lengths = cut(random, count * element, element);
  Buffer in(lengths, element, inputs[comm.rank()]);
  if (pick(random, 2) == 0) {
    CHECK(comm.allreduce(reduction, in.pieces(), in.pieces()).ok());
    CHECK(in.holds(expected));
  } else {
    Buffer out(lengths, element);
    CHECK(comm.allreduce(reduction, in.pieces(), out.pieces()).ok());
    CHECK(out.holds(expected));
    CHECK(in.holds(inputs[comm.rank()]));
  }
}

void check_reducescatter(Communicator& comm, const Reduction& reduction, size_t count, uint64_t operation) {
  const size_t element = hvd::size_of(reduction.type);
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<std::vector<Bytes>> shares;  // [share][rank]
  for (int share = 0; share < comm.size(); ++share) {
    size_t part = count == 0 ? 0 : pick(shared, 2 * count / comm.size() + 1);
    shares.emplace_back();
    for (int rank = 0; rank < comm.size(); ++rank) {
      shares[share].push_back(values(reduction.type, part, seed_of(operation, rank) + 17 * share));
    }
  }
  std::vector<Buffer> in;
  std::vector<Pieces> pieces;
  std::vector<size_t> own_lengths;
  for (int share = 0; share < comm.size(); ++share) {
    const Bytes& content = shares[share][comm.rank()];
    std::vector<size_t> lengths = cut(random, content.size(), element);
    if (share == comm.rank()) own_lengths = lengths;
    in.emplace_back(lengths, element, content);
    pieces.push_back(in.back().pieces());
  }
  Bytes expected = reduced(reduction, shares[comm.rank()]);
  if (pick(random, 2) == 0) {
    CHECK(comm.reducescatter(reduction, pieces, pieces[comm.rank()]).ok());
    CHECK(in[comm.rank()].holds(expected));
  } else {
    Buffer out(own_lengths, element);
    CHECK(comm.reducescatter(reduction, pieces, out.pieces()).ok());
    CHECK(out.holds(expected));
  }
}

void check_allgather(Communicator& comm, size_t bytes, uint64_t operation) {
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<Bytes> contents;
  std::vector<Buffer> out;
  std::vector<Pieces> pieces;
  for (int rank = 0; rank < comm.size(); ++rank) {
    size_t part = pick(shared, 4) == 0 ? 0 : pick(shared, bytes + 1);
    contents.push_back(noise(part, seed_of(operation, rank)));
    out.emplace_back(cut(random, part, 1), 1);
    pieces.push_back(out.back().pieces());
  }
  const Bytes& own = contents[comm.rank()];
  Buffer in(cut(random, own.size(), 1), 1, own);
  CHECK(comm.allgather(in.pieces(), pieces).ok());
  for (int rank = 0; rank < comm.size(); ++rank) CHECK(out[rank].holds(contents[rank]));
}

void check_allgather_in_place(Communicator& comm, size_t bytes, uint64_t operation) {
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

void check_broadcast(Communicator& comm, size_t bytes, int root, uint64_t operation) {
  Bytes content = noise(bytes, operation);
  Random random(seed_of(operation, comm.rank()));
  std::vector<size_t> lengths = cut(random, bytes, 1);
  Buffer data = comm.rank() == root ? Buffer(lengths, 1, content) : Buffer(lengths, 1);
  CHECK(comm.broadcast(data.pieces(), root).ok());
  CHECK(data.holds(content));
}

void check_alltoall(Communicator& comm, size_t bytes, uint64_t operation) {
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

// ---- what every transport must do

Reduction average(DataType type, int size) {
  if (hvd::is_integer(type) || type == DataType::kBool) return {type, ReduceOp::kSum, 1.0, size};
  return {type, ReduceOp::kSum, 1.0 / size, 1};
}

void for_all(const std::function<void(Kind, int)>& body) {
  for (Kind kind : kKinds) {
    for (int size : kSizes) {
      // Unix sockets differ from TCP only below the transport, MPI only below the collectives.
      bool few = kind == Kind::kUnix || kind == Kind::kMpi || kind == Kind::kSecure;
      if (!few || size == 3 || (kind == Kind::kMpi && size == 2)) body(kind, size);
    }
  }
}

// A round of all kinds, with sizes that differ so much that every path follows every other.
void random_operation(Communicator& comm, size_t bytes, uint64_t operation) {
  Random shared(operation);
  auto type = static_cast<DataType>(pick(shared, hvd::kDataTypes));
  size_t count = bytes / hvd::size_of(type);
  switch (pick(shared, 6)) {
    case 0:
      CHECK(comm.barrier().ok());
      break;
    case 1:
      check_allreduce(comm, {type, ReduceOp::kSum, 1.0, 1}, count, operation);
      break;
    case 2:
      check_reducescatter(comm, {type, ReduceOp::kMax, 1.0, 1}, count, operation);
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

size_t random_bytes(Random& random) {
  constexpr size_t kLimits[] = {1, 120, 130, 5000, 40000, 200000};
  return pick(random, kLimits[pick(random, std::size(kLimits))] + 1);
}

}  // namespace

TEST(cursor_walks_both_ways) {
  Bytes content = noise(1000, 1);
  Random random(2);
  Buffer buffer(cut(random, 1000, 1), 1, content);
  hvd::Cursor cursor(buffer.pieces());
  for (int i = 0; i < 1000; ++i) {
    size_t offset = pick(random, 1001), bytes = pick(random, 1001 - offset);
    Bytes got(bytes);
    cursor.seek(offset);
    hvd::gather(cursor, got.data(), bytes);
    CHECK(std::equal(got.begin(), got.end(), content.begin() + static_cast<ptrdiff_t>(offset)));
  }
  cursor.seek(1000);
  CHECK(cursor.run() == 0);
  CHECK(hvd::Cursor(Pieces()).run() == 0);
}

TEST(shared_memory_stays_within_bounds) {
  CHECK(hvd::shm_bytes(2) < 64u << 20);
  for (int size : {1, 2, 15, 16, 17, 100, 1024})
    CHECK(hvd::shm_bytes(size) <= static_cast<size_t>(size) * (33u << 20));
}

TEST(allreduce_of_every_type) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 0;
      for (int type = 0; type < hvd::kDataTypes; ++type) {
        auto data_type = static_cast<DataType>(type);
        for (size_t count : {0, 1, 7, 1000, 10001}) {
          check_allreduce(comm, average(data_type, comm.size()), count, ++operation);
        }
        if (hvd::is_complex(data_type)) continue;
        for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
          check_allreduce(comm, {data_type, op, 1.0, 1}, 333, ++operation);
        }
      }
    });
  });
}

TEST(allreduce_around_the_thresholds) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 100;
      const size_t once = std::clamp<size_t>((128 << 10) / comm.size(), 4 << 10, 32 << 10);
      for (size_t bytes : {size_t{56}, size_t{120}, size_t{16} << 10, once, size_t{64} << 10}) {
        for (size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1}) {
          check_allreduce(comm, average(DataType::kFloat32, comm.size()), count, ++operation);
        }
      }
    });
  });
}

TEST(allreduce_of_many_chunks) {
  for (Kind kind : kKinds) {
    for (int size : {2, 3}) {
      run_ranks(kind, size, [](Communicator& comm, Transport&) {
        const size_t chunk = (256 << 10) * static_cast<size_t>(comm.size()) / 4;
        uint64_t operation = 200;
        for (size_t count : {chunk - 1, chunk, chunk + 1, 3 * chunk + 5, 12 * chunk + 7}) {
          check_allreduce(comm, average(DataType::kFloat32, comm.size()), count, ++operation);
        }
      });
    }
  }
}

TEST(reducescatter) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 300;
      for (size_t count : {0, 1, 30, 8000, 9000, 200000}) {
        check_reducescatter(comm, average(DataType::kFloat32, comm.size()), count, ++operation);
        check_reducescatter(comm, average(DataType::kBfloat16, comm.size()), count, ++operation);
      }
    });
  });
}

TEST(allgather) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 400;
      for (size_t bytes : {0, 1, 120, 121, 32768, 32769, 262144, 700001}) {
        check_allgather(comm, bytes, ++operation);
        check_allgather_in_place(comm, bytes, ++operation);
      }
    });
  });
}

TEST(broadcast_from_every_root) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 500;
      for (int root = 0; root < comm.size(); ++root) {
        for (size_t bytes : {0, 1, 120, 121, 32768, 32769, 131071, 131072, 800003}) {
          check_broadcast(comm, bytes, root, ++operation);
        }
      }
    });
  });
}

TEST(small_broadcasts_do_not_overrun) {
  // The root never waits for an answer; the listeners are slowed down by their own checks.
  run_ranks(Kind::kShm, 3, [](Communicator& comm, Transport&) {
    for (uint64_t operation = 600; operation < 900; ++operation)
      check_broadcast(comm, operation % 200, 1, operation);
  });
}

TEST(alltoall) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 1000;
      for (size_t bytes : {0, 1, 100, 32768, 40000, 300000}) {
        for (int round = 0; round < 3; ++round) check_alltoall(comm, bytes, ++operation);
      }
    });
  });
}

TEST(operations_follow_each_other_in_any_order) {
  for_all([](Kind kind, int size) {
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      Random shared(7);
      for (uint64_t operation = 2000; operation < 2060; ++operation) {
        random_operation(comm, random_bytes(shared), operation);
      }
    });
  });
}

TEST(communicators_share_a_transport) {
  // A global order of operations on overlapping process sets, of which each rank sees its own.
  const std::vector<std::vector<int>> sets = {{0, 1, 2, 3, 4}, {0, 1}, {1, 2, 3}, {0, 2, 4}, {3, 4}, {2}};
  for (Kind kind : kKinds) {
    World world(kind, 5);
    on_threads(5, [&](int rank) {
      std::vector<std::unique_ptr<Communicator>> open;
      for (size_t slot = 0; slot < sets.size(); ++slot) {
        bool member = std::count(sets[slot].begin(), sets[slot].end(), rank) > 0;
        open.push_back(member ? world.transport(rank).open(static_cast<int>(slot), sets[slot]) : nullptr);
      }
      Random shared(8);
      for (uint64_t operation = 3000; operation < 3200; ++operation) {
        size_t slot = pick(shared, sets.size());
        size_t bytes = random_bytes(shared);
        if (open[slot] != nullptr) random_operation(*open[slot], bytes, operation);
      }
    });
  }
}

TEST(slots_are_used_again) {
  for (Kind kind : kKinds) {
    run_ranks(kind, 4, [](Communicator& comm, Transport& transport) {
      Random shared(9);
      for (uint64_t round = 0; round < 20; ++round) {
        std::vector<int> members;
        for (int rank = 0; rank < comm.size(); ++rank) {
          if (pick(shared, 3) > 0) members.push_back(rank);
        }
        const int slot = hvd::kMaxCommunicators - 1 - static_cast<int>(round % 2);
        bool member = std::count(members.begin(), members.end(), comm.rank()) > 0;
        std::unique_ptr<Communicator> set = member ? transport.open(slot, members) : nullptr;
        for (uint64_t i = 0; i < 4; ++i) {
          size_t bytes = random_bytes(shared), world_bytes = random_bytes(shared);
          if (set != nullptr) random_operation(*set, bytes, 4000 + 10 * round + i);
          random_operation(comm, world_bytes, 5000 + 10 * round + i);
          // Its data may still wait to be read when it is destroyed.
          if (i == 2) set.reset();
        }
        CHECK(comm.barrier().ok());
        transport.reset(slot);
        CHECK(comm.barrier().ok());
      }
    });
  }
}

TEST(local_transport_scales) {
  auto transport = hvd::make_local_transport();
  auto comm = transport->open(0, {0});
  check_allreduce(*comm, {DataType::kFloat32, ReduceOp::kSum, 0.25, 1}, 1000, 1);
  check_allreduce(*comm, {DataType::kInt32, ReduceOp::kSum, 1.0, 2}, 1000, 2);
  for (uint64_t operation = 3; operation < 60; ++operation)
    random_operation(*comm, 100 * operation, operation);
}

void check_not_paced(const int pair[2]) {
  hvd::AbortSignal abort;
  auto transport = hvd::make_tcp_transport({-1, pair[0]}, 0, abort);
  char control[16] = {};
  socklen_t bytes = sizeof control;
  CHECK(getsockopt(pair[0], IPPROTO_TCP, TCP_CONGESTION, control, &bytes) == 0);
  CHECK(std::string(control) == "reno");
  close(pair[1]);
}

TEST(connections_within_a_host_are_not_paced) {
  int pair[2];
  connect_pair(Kind::kTcp, pair);
  check_not_paced(pair);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool usable = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(probe);
  if (!usable) return;  // many containers have no IPv6
  connect_through(address, pair);
  check_not_paced(pair);
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
