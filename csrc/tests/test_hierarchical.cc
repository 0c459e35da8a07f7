// The hierarchical transport: ranks as threads on pretended hosts, against the kernel called on whole
// buffers, first for each host, then for the hosts' results.
#include <linux/tcp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>

#include "comm/communicator.h"
#include "comm/hierarchical_layout.h"
#include "tests/check.h"
#include "tests/comm_suite.h"

namespace {

using namespace suite;
using hvd::HierarchicalLayout;
using hvd::ReduceOp;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using HostList = std::vector<int>;  // by rank

// Equal and unequal hosts, ranks in a row and dealt out, hosts numbered against the order of the ranks.
const HostList kLayouts[] = {
    {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 0, 1}, {2, 0, 1, 0, 2},
};

// ---- ranks

class HostWorld {
 public:
  explicit HostWorld(HostList hosts, Kind kind = Kind::kUnix)
      : hosts_(std::move(hosts)), mesh_(hosts_.size(), std::vector<int>(hosts_.size(), -1)) {
    for (int i = 0; i < size(); ++i) {
      aborts_.push_back(std::make_unique<hvd::AbortSignal>());
      for (int j = i + 1; j < size(); ++j) {
        int pair[2];
        connect_pair(kind, pair);
        mesh_[i][j] = pair[0];
        mesh_[j][i] = pair[1];
      }
      const auto here = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_[i]));
      if (here == 1 || memory_.count(hosts_[i]) > 0) continue;
      void* memory = mmap(nullptr, hvd::shm_bytes(here), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(memory != MAP_FAILED);
      memory_[hosts_[i]] = {memory, hvd::shm_bytes(here)};
    }
    for (int i = 0; i < size(); ++i) {
      auto memory = memory_.find(hosts_[i]);
      transports_.push_back(hvd::make_hierarchical_transport(
          memory == memory_.end() ? nullptr : memory->second.data, hosts_, mesh_[i], i, *aborts_[i]));
    }
  }
  ~HostWorld() {
    transports_.clear();
    for (auto& [host, memory] : memory_) munmap(memory.data, memory.bytes);
  }
  HostWorld(const HostWorld&) = delete;
  HostWorld& operator=(const HostWorld&) = delete;

  int size() const { return static_cast<int>(hosts_.size()); }
  Transport& transport(int rank) { return *transports_[rank]; }
  hvd::AbortSignal& abort(int rank) { return *aborts_[rank]; }
  std::vector<int> everyone() const {
    std::vector<int> ranks(hosts_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  HostList hosts_of(const std::vector<int>& members) const {
    HostList hosts;
    for (int member : members) hosts.push_back(hosts_[member]);
    return hosts;
  }
  // What has arrived from the ranks of a host at those of others, for Kind::kTcp.
  uint64_t bytes_sent(int host) const {
    uint64_t sum = 0;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        if (hosts_[from] != host || hosts_[to] == host) continue;
        tcp_info info = {};
        socklen_t length = sizeof info;
        CHECK(getsockopt(mesh_[to][from], IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
        sum += info.tcpi_bytes_received;
      }
    }
    return sum;
  }

 private:
  HostList hosts_;
  std::vector<std::vector<int>> mesh_;
  std::map<int, Piece> memory_;
  std::vector<std::unique_ptr<hvd::AbortSignal>> aborts_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// `body` on every rank with the world's communicator.
void run_hosts(const HostList& hosts, const std::function<void(Communicator&, const HostList&)>& body) {
  HostWorld world(hosts);
  on_threads(world.size(), [&](int rank) {
    auto communicator = world.transport(rank).open(0, world.everyone());
    CHECK(communicator->rank() == rank && communicator->size() == world.size());
    body(*communicator, hosts);
  });
}

void run_layouts(const std::function<void(Communicator&, const HostList&)>& body) {
  for (const HostList& hosts : kLayouts) run_hosts(hosts, body);
}

// ---- one operation of each kind, checked on each rank; `operation` makes the data

uint64_t seed_of(uint64_t operation, int rank) { return operation * 1000 + rank; }

// Each host's values in rank order, then the hosts' results.
Bytes reduced_by_host(const Reduction& reduction, const HostList& hosts, const std::vector<Bytes>& inputs) {
  std::map<int, std::vector<Bytes>> by_host;
  size_t most = 0;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    std::vector<Bytes>& here = by_host[hosts[rank]];
    here.push_back(inputs[rank]);
    most = std::max(most, here.size());
  }
  if (by_host.size() == 1 || most == 1) return reduced(reduction, inputs);
  const Reduction partial = {reduction.type, reduction.op, 1.0};
  std::vector<Bytes> results;
  for (auto& entry : by_host) results.push_back(reduced(partial, entry.second));
  return reduced(reduction, results);
}

void check_allreduce(Communicator& comm, const HostList& hosts, const Reduction& reduction, size_t count,
                     uint64_t operation) {
  const size_t element = hvd::size_of(reduction.type);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(values(reduction.type, count, seed_of(operation, rank)));
  const Bytes expected = reduced_by_host(reduction, hosts, inputs);
  Random random(seed_of(operation, comm.rank()));
  const std::vector<size_t> lengths = cut(random, count * element, element);
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

void check_reducescatter(Communicator& comm, const HostList& hosts, const Reduction& reduction, size_t count,
                         uint64_t operation) {
  const size_t element = hvd::size_of(reduction.type);
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<Buffer> in;
  std::vector<Pieces> pieces;
  std::vector<Bytes> own_inputs;  // all ranks', of this rank's share
  std::vector<size_t> own_lengths;
  for (int share = 0; share < comm.size(); ++share) {
    const size_t part = pick(shared, 2 * count / comm.size() + 1);
    auto input = [&](int rank) {
      return values(reduction.type, part, seed_of(operation, rank) + 17 * share);
    };
    std::vector<size_t> lengths = cut(random, part * element, element);
    in.emplace_back(lengths, element, input(comm.rank()));
    pieces.push_back(in.back().pieces());
    if (share != comm.rank()) continue;
    own_lengths = lengths;
    for (int rank = 0; rank < comm.size(); ++rank) own_inputs.push_back(input(rank));
  }
  const Bytes expected = reduced_by_host(reduction, hosts, own_inputs);
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

void check_allgather(Communicator& comm, size_t bytes, uint64_t operation) {
  Random shared(operation), random(seed_of(operation, comm.rank()));
  std::vector<Bytes> contents;
  std::vector<Buffer> out;
  std::vector<Pieces> pieces;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const size_t part = pick(shared, 4) == 0 ? 0 : pick(shared, bytes + 1);
    contents.push_back(noise(part, seed_of(operation, rank)));
    out.emplace_back(cut(random, part, 1), 1);
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

void check_broadcast(Communicator& comm, size_t bytes, int root, uint64_t operation) {
  const Bytes content = noise(bytes, operation);
  Random random(seed_of(operation, comm.rank()));
  const std::vector<size_t> lengths = cut(random, bytes, 1);
  Buffer data = comm.rank() == root ? Buffer(lengths, 1, content) : Buffer(lengths, 1);
  CHECK(comm.broadcast(data.pieces(), root).ok());
  CHECK(data.holds(content));
}

void check_alltoall(Communicator& comm, size_t bytes, uint64_t operation) {
  Random random(seed_of(operation, comm.rank()));
  auto content = [&](int from, int to) {
    Random shared(operation * 10000 + from * 100 + to);
    return noise(pick(shared, bytes + 1), shared());
  };
  std::vector<Buffer> in, out;
  std::vector<Pieces> in_pieces, out_pieces;
  for (int peer = 0; peer < comm.size(); ++peer) {
    const Bytes sent = content(comm.rank(), peer);
    in.emplace_back(cut(random, sent.size(), 1), 1, sent);
    out.emplace_back(cut(random, content(peer, comm.rank()).size(), 1), 1);
    in_pieces.push_back(in.back().pieces());
    out_pieces.push_back(out.back().pieces());
  }
  CHECK(comm.alltoall(in_pieces, out_pieces).ok());
  for (int peer = 0; peer < comm.size(); ++peer) CHECK(out[peer].holds(content(peer, comm.rank())));
}

Reduction average(DataType type, int size) {
  if (type == DataType::kBool) return {type, ReduceOp::kMin, 1.0};
  return {type, ReduceOp::kSum, 1.0 / size};
}

void random_operation(Communicator& comm, const HostList& hosts, size_t bytes, uint64_t operation) {
  Random shared(operation);
  const auto type = static_cast<DataType>(pick(shared, hvd::kDataTypes));
  const size_t count = bytes / hvd::size_of(type);
  switch (pick(shared, 6)) {
    case 0:
      CHECK(comm.barrier().ok());
      break;
    case 1:
      check_allreduce(comm, hosts, average(type, comm.size()), count, operation);
      break;
    case 2:
      check_reducescatter(comm, hosts, {type, ReduceOp::kSum, 1.0}, count, operation);
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
  constexpr size_t kLimits[] = {1, 130, 5000, 40000, 200000};
  return pick(random, kLimits[pick(random, std::size(kLimits))] + 1);
}

}  // namespace

TEST(layout_of_unequal_hosts) {
  const HierarchicalLayout layout({7, 3, 7, 5, 7, 3}, 4);
  CHECK(layout.hosts() == 3 && layout.size() == 6 && layout.lanes() == 3 && layout.complete_lanes() == 1);
  CHECK(layout.members(0) == (std::vector<int>{1, 5}));
  CHECK(layout.members(1) == (std::vector<int>{3}));
  CHECK(layout.members(2) == (std::vector<int>{0, 2, 4}));
  CHECK(layout.host() == 2 && layout.local() == 2 && layout.host_of(3) == 1 && layout.lane_of(5) == 1);
  CHECK(layout.lane_members(0) == (std::vector<int>{1, 3, 0}));
  CHECK(layout.lane_members(1) == (std::vector<int>{5, 3, 2}));
  CHECK(layout.lane_members(2) == (std::vector<int>{1, 3, 4}));
  CHECK(layout.serves(2) && !layout.serves(0));
  CHECK(layout.owner(0, 1) == 5 && layout.owner(1, 1) == -1);
}

TEST(allreduce_of_every_type) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    uint64_t operation = 0;
    for (int code = 0; code < hvd::kDataTypes; ++code) {
      const auto type = static_cast<DataType>(code);
      for (size_t count : {0, 1, 7, 1000, 10001})
        check_allreduce(comm, hosts, average(type, comm.size()), count, ++operation);
      if (hvd::is_complex(type)) continue;
      for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
        check_allreduce(comm, hosts, {type, op, 1.0}, 333, ++operation);
    }
  });
}

TEST(allreduce_around_the_thresholds) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    uint64_t operation = 100;
    for (size_t bytes : {8 << 10, 16 << 10, 32 << 10, 64 << 10}) {
      for (size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1})
        check_allreduce(comm, hosts, average(DataType::kFloat32, comm.size()), count, ++operation);
    }
    for (size_t count : {300000, 1000001})
      check_allreduce(comm, hosts, average(DataType::kFloat16, comm.size()), count, ++operation);
  });
}

TEST(allreduce_in_blocks) {
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 1, 0, 1}}) {
    run_hosts(hosts, [](Communicator& comm, const HostList& hosts) {
      // Three blocks, the last one shorter; wide numbers, as the reference is slow.
      check_allreduce(comm, hosts, average(DataType::kFloat64, comm.size()), (size_t{7} << 19) + 1, 150);
    });
  }
}

TEST(the_size_does_not_matter) {
  run_layouts([](Communicator& comm, const HostList&) {
    for (DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      const size_t count = 60000, element = hvd::size_of(type);
      const Reduction reduction = average(type, comm.size());
      const Bytes input = values(type, count, static_cast<uint64_t>(comm.rank()));
      Bytes whole = input, small = input;
      auto in_place = [&](Bytes& memory, size_t from, size_t elements) {
        Pieces pieces = {{memory.data() + from * element, elements * element}};
        CHECK(comm.allreduce(reduction, pieces, pieces).ok());
      };
      in_place(whole, 0, count);
      Random shared(1);
      for (size_t from = 0; from < count;) {
        const size_t elements = std::min(count - from, 1 + pick(shared, 3000));
        in_place(small, from, elements);
        from += elements;
      }
      CHECK(small == whole);

      Bytes source = input;
      const size_t share = count / comm.size() * element;
      std::vector<Pieces> shares;
      for (int rank = 0; rank < comm.size(); ++rank)
        shares.push_back({{source.data() + rank * share, share}});
      Bytes mine(share);
      CHECK(comm.reducescatter(reduction, shares, {{mine.data(), share}}).ok());
      CHECK(
          std::equal(mine.begin(), mine.end(), whole.begin() + static_cast<ptrdiff_t>(comm.rank() * share)));
    }
  });
}

TEST(reducescatter) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    uint64_t operation = 300;
    for (size_t count : {0, 1, 30, 9000, 200000}) {
      check_reducescatter(comm, hosts, average(DataType::kFloat32, comm.size()), count, ++operation);
      check_reducescatter(comm, hosts, average(DataType::kBfloat16, comm.size()), count, ++operation);
      check_reducescatter(comm, hosts, average(DataType::kBool, comm.size()), count, ++operation);
    }
  });
}

TEST(reducescatter_in_rounds) {
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 1, 0, 1}}) {
    run_hosts(hosts, [](Communicator& comm, const HostList& hosts) {
      check_reducescatter(comm, hosts, average(DataType::kFloat32, comm.size()), 12 << 20, 350);
    });
  }
}

TEST(allgather) {
  run_layouts([](Communicator& comm, const HostList&) {
    uint64_t operation = 400;
    for (size_t bytes : {0, 1, 120, 121, 32769, 700001}) {
      for (int round = 0; round < 2; ++round) check_allgather(comm, bytes, ++operation);
    }
  });
}

TEST(broadcast_from_every_root) {
  run_layouts([](Communicator& comm, const HostList&) {
    uint64_t operation = 500;
    for (int root = 0; root < comm.size(); ++root) {
      for (size_t bytes : {0, 1, 121, 32769, 131072, 800003}) check_broadcast(comm, bytes, root, ++operation);
    }
  });
}

TEST(alltoall) {
  run_layouts([](Communicator& comm, const HostList&) {
    uint64_t operation = 600;
    for (size_t bytes : {0, 1, 100, 40000, 300000}) check_alltoall(comm, bytes, ++operation);
  });
}

TEST(operations_follow_each_other_in_any_order) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    Random shared(7);
    for (uint64_t operation = 2000; operation < 2080; ++operation)
      random_operation(comm, hosts, random_bytes(shared), operation);
  });
}

TEST(nobody_leaves_a_barrier_before_all_came) {
  for (const HostList& hosts : kLayouts) {
    std::atomic<int> came{0};
    run_hosts(hosts, [&](Communicator& comm, const HostList&) {
      for (int round = 1; round <= 50; ++round) {
        ++came;
        CHECK(comm.barrier().ok());
        CHECK(came >= round * comm.size());
      }
    });
  }
}

TEST(communicators_share_a_transport) {
  // On one host, one on each host, alone, and in between.
  const std::vector<std::vector<int>> sets = {{0, 1, 2, 3, 4, 5}, {0, 1, 2}, {0, 3, 4}, {0, 1, 4, 5},
                                              {1, 2, 3},          {3},       {4, 5},    {2, 3, 4, 5}};
  HostWorld world({0, 0, 0, 1, 2, 2});
  on_threads(world.size(), [&](int rank) {
    std::vector<std::unique_ptr<Communicator>> open;
    for (size_t slot = 0; slot < sets.size(); ++slot) {
      const bool member = std::count(sets[slot].begin(), sets[slot].end(), rank) > 0;
      open.push_back(member ? world.transport(rank).open(static_cast<int>(slot), sets[slot]) : nullptr);
    }
    Random shared(8);
    for (uint64_t operation = 3000; operation < 3200; ++operation) {
      const size_t slot = pick(shared, sets.size());
      const size_t bytes = random_bytes(shared);
      if (open[slot] != nullptr) random_operation(*open[slot], world.hosts_of(sets[slot]), bytes, operation);
    }
  });
}

TEST(slots_are_used_again) {
  HostWorld world({0, 1, 0, 1, 2});
  on_threads(world.size(), [&](int rank) {
    Transport& transport = world.transport(rank);
    auto everyone = transport.open(0, world.everyone());
    Random shared(9);
    for (uint64_t round = 0; round < 20; ++round) {
      std::vector<int> members;
      for (int peer = 0; peer < world.size(); ++peer) {
        if (pick(shared, 4) > 0) members.push_back(peer);
      }
      const int slot = hvd::kMaxCommunicators - 1 - static_cast<int>(round % 2);
      const bool member = std::count(members.begin(), members.end(), rank) > 0;
      std::unique_ptr<Communicator> set = member ? transport.open(slot, members) : nullptr;
      for (uint64_t i = 0; i < 4; ++i) {
        const size_t bytes = random_bytes(shared), world_bytes = random_bytes(shared);
        if (set != nullptr) random_operation(*set, world.hosts_of(members), bytes, 4000 + 10 * round + i);
        random_operation(*everyone, world.hosts_of(world.everyone()), world_bytes, 5000 + 10 * round + i);
        if (i == 2) set.reset();
      }
      CHECK(everyone->barrier().ok());
      transport.reset(slot);
      CHECK(everyone->barrier().ok());
    }
  });
}

TEST(bytes_between_hosts) {
  // Every byte that must cross does so once, however many ranks a host has.
  constexpr size_t kBytes = 3 << 20;
  using Collective = std::function<Status(Communicator&, const Pieces&)>;
  for (const HostList& hosts : {HostList{0, 0, 1, 1}, HostList{0, 0, 1, 1, 2, 2}, HostList{0, 0, 0, 1}}) {
    const double others = *std::max_element(hosts.begin(), hosts.end());
    const auto ranks = static_cast<double>(hosts.size());
    const auto ranks_here = static_cast<double>(std::count(hosts.begin(), hosts.end(), 0));
    auto check_sent = [&](double expected, const Collective& collective) {
      HostWorld world(hosts, Kind::kTcp);
      on_threads(world.size(), [&](int rank) {
        auto comm = world.transport(rank).open(0, world.everyone());
        Bytes memory(kBytes);
        CHECK(collective(*comm, {{memory.data(), kBytes}}).ok());
      });
      const double sent = static_cast<double>(world.bytes_sent(0)) / kBytes;
      CHECK(sent > 0.999 * expected && sent < 1.05 * expected);
    };
    check_sent(2 * others / (others + 1),
               [](Communicator& comm, const Pieces& data) { return comm.allreduce({}, data, data); });
    check_sent(ranks - ranks_here, [](Communicator& comm, const Pieces& data) {
      return comm.reducescatter({}, std::vector<Pieces>(static_cast<size_t>(comm.size()), data), data);
    });
    check_sent(ranks_here * others, [](Communicator& comm, const Pieces& data) {
      std::vector<Bytes> memory(static_cast<size_t>(comm.size()), Bytes(kBytes));
      std::vector<Pieces> out;
      for (Bytes& bytes : memory) out.push_back({{bytes.data(), kBytes}});
      return comm.allgather(data, out);
    });
    check_sent(1, [](Communicator& comm, const Pieces& data) { return comm.broadcast(data, 1); });
  }
}

// ---- failures

TEST(abort_ends_stuck_collectives) {
  using Collective = std::function<Status(Communicator&, const Pieces&)>;
  const std::vector<Collective> collectives = {
      [](Communicator& comm, const Pieces&) { return comm.barrier(); },
      [](Communicator& comm, const Pieces& data) { return comm.allreduce({}, data, data); },
      [](Communicator& comm, const Pieces& data) {
        return comm.reducescatter({}, std::vector<Pieces>(static_cast<size_t>(comm.size()), data), data);
      },
      [](Communicator& comm, const Pieces& data) {
        return comm.allgather(data, std::vector<Pieces>(static_cast<size_t>(comm.size()), data));
      },
      [](Communicator& comm, const Pieces& data) { return comm.broadcast(data, comm.size() - 1); },
      [](Communicator& comm, const Pieces& data) {
        std::vector<Pieces> all(static_cast<size_t>(comm.size()), data);
        return comm.alltoall(all, all);
      },
  };
  // Within a host and between hosts somebody is missing: the last rank, alone on its host or not.
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 0, 1, 1}}) {
    for (const Collective& collective : collectives) {
      for (size_t bytes : {size_t{4}, size_t{1} << 20, size_t{17} << 20}) {
        HostWorld world(hosts);
        on_threads(world.size(), [&](int rank) {
          const int last = world.size() - 1;
          if (rank == last) {
            // The others should be stuck by then; if not, they meet the signal on their way in, which is as
            // good.
            std::this_thread::sleep_for(milliseconds(5));
            for (int peer = 0; peer < last; ++peer)
              world.abort(peer).raise(Status::unknown("the last rank was killed by signal 9"));
            return;
          }
          Bytes memory(bytes);
          auto comm = world.transport(rank).open(0, world.everyone());
          const auto begin = Clock::now();
          const Status status = collective(*comm, {{memory.data(), bytes}});
          CHECK(status.code() == HVD_UNKNOWN && status.text() == "the last rank was killed by signal 9");
          CHECK(Clock::now() - begin < milliseconds(60000));
        });
      }
    }
  }
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
