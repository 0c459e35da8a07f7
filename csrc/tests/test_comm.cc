// Every collective on every transport, against the kernel called once on whole buffers.
#include <netinet/tcp.h>

#include <algorithm>
#include <string>

#include "comm/mesh/communicator.h"
#include "comm/pieces.h"
#include "comm/transport.h"
#include "tests/check.h"
#include "tests/comm_operations.h"

namespace {

using namespace suite;
using hvd::ReduceOp;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};

// ---- what every transport must do

void for_all(const std::function<void(Kind, int)>& body) {
  for (Kind kind : kKinds) {
    for (int size : kSizes) {
      // These differ from others only below the transport, MPI only below the collectives.
      bool few = kind == Kind::kUnix || kind == Kind::kMpi || kind == Kind::kSecure ||
                 kind == Kind::kStreams || kind == Kind::kSecureStreams;
      if (!few || size == 3 || (kind == Kind::kMpi && size == 2)) body(kind, size);
    }
  }
}

// Peers that always have what is waited for; counts what is sent to them.
class CountedExchange final : public hvd::Exchange {
 public:
  CountedExchange(int rank, int size, size_t* sent) : rank_(rank), size_(size), sent_(*sent) {}
  Status run(hvd::Plan& plan) override {
    hvd::Transfer transfer;
    for (bool more = true; more;) {
      more = false;
      for (int peer = 0; peer < size_; ++peer) {
        while (peer != rank_ && plan.send(peer, transfer) == hvd::Next::kTransfer) {
          sent_ += transfer.bytes > 0;
          transfer.place->advance(transfer.bytes);
          more = true;
        }
        if (peer == rank_ || plan.receive(peer, transfer) != hvd::Next::kTransfer) continue;
        transfer.place->advance(transfer.bytes);
        plan.received(peer);
        more = true;
      }
    }
    return {};
  }

 private:
  const int rank_, size_;
  size_t& sent_;
};

size_t messages_of_allreduce(int rank, int size, size_t elements, size_t* staging = nullptr) {
  size_t sent = 0;
  hvd::MeshCommunicator::Shared shared;
  hvd::MeshCommunicator comm(std::make_unique<CountedExchange>(rank, size, &sent), rank, size, shared);
  std::vector<float> data(elements);
  const Pieces pieces{{data.data(), elements * sizeof(float)}};
  CHECK(comm.allreduce({DataType::kFloat32, ReduceOp::kSum, 1.0}, pieces, pieces).ok());
  if (staging != nullptr) *staging = shared.staging.size();
  return sent;
}

}  // namespace

TEST(little_of_many_ranks_goes_to_one_of_them_and_back) {
  CHECK(messages_of_allreduce(3, 8, 1) == 7);
  for (size_t elements : {1, 200, 1024}) {
    CHECK(messages_of_allreduce(0, 16, elements) == 15);
    CHECK(messages_of_allreduce(7, 16, elements) == 1);
  }
  CHECK(messages_of_allreduce(7, 16, 1025) == 15);
  for (int size : {9, 16})
    run_ranks(Kind::kTcp, size, [](Communicator& comm, Transport&) {
      uint64_t operation = 0;
      for (DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kInt64})
        for (size_t count : {1, 7, 512, 513, 2048, 2049})
          check_allreduce(comm, average(type, comm.size()), count, ++operation);
    });
}

// Every rank of 200 would have 32 MiB, most of which it never uses.
TEST(a_few_bytes_of_many_ranks_take_little_memory) {
  for (int rank : {0, 7}) {
    size_t staging = 0;
    messages_of_allreduce(rank, 200, 1, &staging);
    CHECK(staging <= 200 * 64);
    messages_of_allreduce(rank, 200, 100'000, &staging);  // 500 for each, to be combined
    CHECK(staging <= 200 * 2048);
  }
}

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
  CHECK(cursor.contiguous() == 0);
  CHECK(hvd::Cursor(Pieces()).contiguous() == 0);
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
          check_allreduce(comm, {data_type, op, 1.0}, 333, ++operation);
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
      for (size_t id = 0; id < sets.size(); ++id) {
        bool member = std::count(sets[id].begin(), sets[id].end(), rank) > 0;
        open.push_back(member ? world.transport(rank).open(static_cast<int>(id), sets[id]) : nullptr);
      }
      Random shared(8);
      for (uint64_t operation = 3000; operation < 3200; ++operation) {
        size_t id = pick(shared, sets.size());
        size_t bytes = random_bytes(shared);
        if (open[id] != nullptr) random_operation(*open[id], bytes, operation);
      }
    });
  }
}

TEST(ids_are_used_again) {
  for (Kind kind : kKinds) {
    run_ranks(kind, 4, [](Communicator& comm, Transport& transport) {
      Random shared(9);
      for (uint64_t round = 0; round < 20; ++round) {
        const std::vector<int> members = random_members(shared, comm.size(), 3);
        const int id = hvd::kMaxCommunicators - 1 - static_cast<int>(round % 2);
        bool member = std::count(members.begin(), members.end(), comm.rank()) > 0;
        std::unique_ptr<Communicator> set = member ? transport.open(id, members) : nullptr;
        for (uint64_t i = 0; i < 4; ++i) {
          size_t bytes = random_bytes(shared), world_bytes = random_bytes(shared);
          if (set != nullptr) random_operation(*set, bytes, 4000 + 10 * round + i);
          random_operation(comm, world_bytes, 5000 + 10 * round + i);
          // Its data may still wait to be read when it is destroyed.
          if (i == 2) set.reset();
        }
        CHECK(comm.barrier().ok());
        transport.reset(id);
        CHECK(comm.barrier().ok());
      }
    });
  }
}

TEST(local_transport_scales) {
  auto transport = hvd::make_single_transport();
  auto comm = transport->open(0, {0});
  check_allreduce(*comm, {DataType::kFloat32, ReduceOp::kSum, 0.25}, 1000, 1);
  check_allreduce(*comm, {DataType::kInt32, ReduceOp::kSum, 0.5}, 1000, 2);
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

// Each of them is needed: what arrives over one that is closed does not come over another one.
TEST(large_ones_need_every_stream) {
  for (int closed : {-1, 0, 1, 2}) {
    for (size_t bytes : {size_t{60} << 10, size_t{1} << 20}) {
      std::vector<int> ends[2];
      for (auto& list : ends) list.assign(6, -1);
      for (size_t stream = 0; stream < 3; ++stream) {
        int pair[2];
        connect_pair(Kind::kTcp, pair);
        if (static_cast<int>(stream) == closed) shutdown(pair[0], SHUT_RDWR);
        ends[0][2 * stream + 1] = pair[0];
        ends[1][2 * stream] = pair[1];
      }
      const bool used = closed == 0 || (closed > 0 && bytes > (128 << 10));
      on_threads(2, [&](int rank) {
        hvd::AbortSignal abort;
        auto transport = hvd::make_tcp_transport(ends[rank], rank, abort, {}, 3);
        Bytes memory(bytes);
        const Pieces pieces = {{memory.data(), bytes}};
        const Status status = transport->open(0, {0, 1})->broadcast(pieces, 0);
        if (!used) {
          CHECK(status.ok());
        } else if (rank == 1) {
          CHECK(status.code() == HVD_UNKNOWN && status.text().find("rank 0") != std::string::npos);
        }
      });
    }
  }
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
