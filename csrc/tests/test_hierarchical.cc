// The hierarchical transport: ranks as threads on pretended hosts, against the kernel called on whole
// buffers, first for each host, then for the hosts' results.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include "comm/hierarchical/layout.h"
#include "comm/transport.h"
#include "tests/check.h"
#include "tests/host_world.h"

namespace {

using namespace suite;
using hvd::HierarchicalLayout;
using hvd::ReduceOp;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

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

TEST(a_rank_is_connected_to_one_of_each_other_host) {
  const HostList hosts = {0, 0, 0, 1, 1, 1, 2, 2, 2};
  HostWorld world(hosts), of_streams(hosts, Kind::kStreams);
  for (int rank = 0; rank < world.size(); ++rank)
    CHECK(world.connections(rank) == 2 && of_streams.connections(rank) == 2 * 3);
  auto sum = [&](int rank, int id, const std::vector<int>& members) {
    float value = 1;
    const Pieces pieces = {{&value, sizeof value}};
    Status status = world.transport(rank).open(id, members)->allreduce({}, pieces, pieces);
    CHECK(!status.ok() || value == static_cast<float>(members.size()));
    return status;
  };
  const std::vector<int> members = {0, 4};
  on_threads(2, [&](int index) {
    const Status status = sum(members[static_cast<size_t>(index)], 1, members);
    CHECK(status.text().find("no connection to rank " + std::to_string(members[1 - index])) !=
          std::string::npos);
  });
  world.connect(members);
  CHECK(world.connections(0) == 3 && world.connections(4) == 3);
  on_threads(2, [&](int index) { CHECK(sum(members[static_cast<size_t>(index)], 2, members).ok()); });
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  CHECK(!world.transport(0).connect(4, pair[0], nullptr).ok());  // there is one
  char byte;
  CHECK(read(pair[1], &byte, 1) == 0);  // and this one is closed
  close(pair[1]);
}

TEST(allreduce_of_every_type) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    uint64_t operation = 0;
    for (int code = 0; code < hvd::kDataTypes; ++code) {
      const auto type = static_cast<DataType>(code);
      for (size_t count : {0, 1, 7, 1000, 10001})
        check_allreduce(comm, average(type, comm.size()), count, ++operation, by_host(hosts));
      if (hvd::is_complex(type)) continue;
      for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct})
        check_allreduce(comm, {type, op, 1.0}, 333, ++operation, by_host(hosts));
    }
  });
}

TEST(allreduce_around_the_thresholds) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    uint64_t operation = 100;
    for (size_t bytes : {8 << 10, 16 << 10, 32 << 10, 64 << 10}) {
      for (size_t count : {bytes / 4 - 1, bytes / 4, bytes / 4 + 1})
        check_allreduce(comm, average(DataType::kFloat32, comm.size()), count, ++operation, by_host(hosts));
    }
    for (size_t count : {300000, 1000001})
      check_allreduce(comm, average(DataType::kFloat16, comm.size()), count, ++operation, by_host(hosts));
  });
}

TEST(allreduce_in_chunks) {
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 1, 0, 1}}) {
    run_hosts(hosts, [](Communicator& comm, const HostList& hosts) {
      // Three blocks, the last one shorter; wide numbers, as the reference is slow.
      check_allreduce(comm, average(DataType::kFloat64, comm.size()), (size_t{7} << 19) + 1, 150,
                      by_host(hosts));
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
      check_reducescatter(comm, average(DataType::kFloat32, comm.size()), count, ++operation, by_host(hosts));
      check_reducescatter(comm, average(DataType::kBfloat16, comm.size()), count, ++operation,
                          by_host(hosts));
      check_reducescatter(comm, average(DataType::kBool, comm.size()), count, ++operation, by_host(hosts));
    }
  });
}

TEST(reducescatter_in_rounds) {
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 1, 0, 1}}) {
    run_hosts(hosts, [](Communicator& comm, const HostList& hosts) {
      check_reducescatter(comm, average(DataType::kFloat32, comm.size()), 12 << 20, 350, by_host(hosts));
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

TEST(alltoall_in_rounds) {
  // Hosts have different numbers of them, and some ranks more to get than their host has to send.
  for (const HostList& hosts : {HostList{0, 0, 1}, HostList{0, 1, 0, 1}, HostList{0, 0, 0, 1, 2, 2}}) {
    run_hosts(hosts, [](Communicator& comm, const HostList&) {
      for (uint64_t operation : {650, 651, 652})
        check_alltoall(comm, (20 << 20) / static_cast<size_t>(comm.size()), operation);
    });
  }
}

TEST(operations_follow_each_other_in_any_order) {
  run_layouts([](Communicator& comm, const HostList& hosts) {
    Random shared(7);
    for (uint64_t operation = 2000; operation < 2080; ++operation)
      random_operation(comm, random_bytes(shared), operation, by_host(hosts));
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
  for (Kind kind : {Kind::kUnix, Kind::kStreams}) {
    HostWorld world({0, 0, 0, 1, 2, 2}, kind);
    for (const std::vector<int>& members : sets) world.connect(members);
    on_threads(world.size(), [&](int rank) {
      std::vector<std::unique_ptr<Communicator>> open;
      for (size_t id = 0; id < sets.size(); ++id) {
        const bool member = std::count(sets[id].begin(), sets[id].end(), rank) > 0;
        open.push_back(member ? world.transport(rank).open(static_cast<int>(id), sets[id]) : nullptr);
      }
      Random shared(8);
      for (uint64_t operation = 3000; operation < 3200; ++operation) {
        const size_t id = pick(shared, sets.size());
        const size_t bytes = random_bytes(shared);
        if (open[id] != nullptr)
          random_operation(*open[id], bytes, operation, by_host(world.hosts_of(sets[id])));
      }
    });
  }
}

TEST(ids_are_used_again) {
  HostWorld world({0, 1, 0, 1, 2});
  for (int rank = 0; rank < world.size(); ++rank)
    for (int other = 0; other < rank; ++other) world.connect({other, rank});
  on_threads(world.size(), [&](int rank) {
    Transport& transport = world.transport(rank);
    auto everyone = transport.open(0, world.everyone());
    Random shared(9);
    for (uint64_t round = 0; round < 20; ++round) {
      const std::vector<int> members = random_members(shared, world.size(), 4);
      const int id = hvd::kMaxCommunicators - 1 - static_cast<int>(round % 2);
      const bool member = std::count(members.begin(), members.end(), rank) > 0;
      std::unique_ptr<Communicator> set = member ? transport.open(id, members) : nullptr;
      for (uint64_t i = 0; i < 4; ++i) {
        const size_t bytes = random_bytes(shared), world_bytes = random_bytes(shared);
        if (set != nullptr)
          random_operation(*set, bytes, 4000 + 10 * round + i, by_host(world.hosts_of(members)));
        random_operation(*everyone, world_bytes, 5000 + 10 * round + i,
                         by_host(world.hosts_of(world.everyone())));
        if (i == 2) set.reset();
      }
      CHECK(everyone->barrier().ok());
      transport.reset(id);
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
    check_sent(ranks_here * (ranks - ranks_here), [](Communicator& comm, const Pieces& data) {
      std::vector<Bytes> memory(static_cast<size_t>(comm.size()), Bytes(kBytes));
      std::vector<Pieces> out;
      for (Bytes& bytes : memory) out.push_back({{bytes.data(), kBytes}});
      return comm.alltoall(std::vector<Pieces>(out.size(), data), out);
    });
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
