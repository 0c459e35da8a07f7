// More members than exchange directly: rows of them, on connections and MPI messages, against the kernel
// called for each row and then for the rows' results.
#include <algorithm>
#include <atomic>

#include "comm/hierarchical/grid.h"
#include "tests/check.h"
#include "tests/host_world.h"

namespace {

using namespace suite;
using hvd::ReduceOp;

}  // namespace

TEST(rows_are_even) {
  CHECK(hvd::longest_row(hvd::kMostDirect) == hvd::kMostDirect);
  for (int size = hvd::kMostDirect + 1; size <= 1100; ++size) {
    const std::vector<int> rows = hvd::rows_of(size);
    CHECK(static_cast<int>(rows.size()) == size && std::is_sorted(rows.begin(), rows.end()));
    const int count = rows.back() + 1;
    int shortest = size, longest = 0;
    for (int row = 0; row < count; ++row) {
      const auto length = static_cast<int>(std::count(rows.begin(), rows.end(), row));
      shortest = std::min(shortest, length);
      longest = std::max(longest, length);
    }
    CHECK(shortest >= 1 && longest - shortest <= (size % count == 0 ? 0 : 1));
    CHECK(hvd::longest_row(size) == longest);
    CHECK(count >= 3 && longest <= 2 * count + 1 && count <= longest);
    for (int even = 1; even * even <= size; ++even)
      CHECK(2 * even * even < size || size % even != 0 || longest == shortest);
  }
}

TEST(every_collective_of_many_ranks) {
  for (auto [kind, size] : {std::pair{Kind::kUnix, 17},
                            {Kind::kUnix, 18},
                            {Kind::kMpi, 18},
                            {Kind::kUnix, 23},
                            {Kind::kUnix, 32}}) {
    if (check::kThreadSanitizer && size > 18) continue;
    run_ranks(kind, size, [](Communicator& comm, Transport&) {
      const Combine rows = by_host(hvd::rows_of(comm.size()));
      const Reduction floats = average(DataType::kFloat32, comm.size());
      uint64_t operation = 0;
      for (size_t count : {1, 1000, 20000, 100001}) {
        check_allreduce(comm, floats, count, ++operation, rows);
        check_reducescatter(comm, floats, count, ++operation, rows);
        check_allgather(comm, count, ++operation);
        check_broadcast(comm, count, static_cast<int>(count) % comm.size(), ++operation);
        check_alltoall(comm, count / 10, ++operation);
      }
      check_allreduce(comm, average(DataType::kBfloat16, comm.size()), 5000, ++operation, rows);
      check_allreduce(comm, {DataType::kInt32, ReduceOp::kMin, 1.0}, 5000, ++operation, rows);
      CHECK(comm.barrier().ok());
      Random shared(3);
      for (uint64_t i = 0; i < 20; ++i) random_operation(comm, random_bytes(shared), 100 + i, rows);
    });
  }
}

// Two ranks on each of 17 hosts: rows of hosts.
TEST(many_hosts) {
  HostList hosts;
  for (int rank = 0; rank < 34; ++rank) hosts.push_back(rank / 2);
  run_hosts(hosts, [](Communicator& comm, const HostList& hosts) {
    const Combine combine = [&](const Reduction& reduction, const std::vector<Bytes>& inputs) {
      const Reduction partial = {reduction.type, reduction.op, 1.0};
      std::vector<Bytes> results;
      for (size_t i = 0; i < inputs.size(); i += 2)
        results.push_back(reduced(partial, {inputs[i], inputs[i + 1]}));
      return reduced_by_host(reduction, hvd::rows_of(static_cast<int>(results.size())), results);
    };
    CHECK(hosts.size() == 34);
    uint64_t operation = 0;
    for (size_t count : {1, 3000, 100001}) {
      check_allreduce(comm, average(DataType::kFloat32, comm.size()), count, ++operation, combine);
      check_reducescatter(comm, average(DataType::kFloat32, comm.size()), count, ++operation, combine);
      check_alltoall(comm, count / 10, ++operation);
      check_allgather(comm, count, ++operation);
    }
    // Often only one rank has something, for one other.
    for (int i = 0; i < 20; ++i) check_alltoall(comm, 0, ++operation);
  });
}

// In shared memory all ranks combine in their order, and up to kMostDirect do on connections.
TEST(sixteen_are_combined_in_their_order) {
  run_ranks(Kind::kUnix, hvd::kMostDirect, [](Communicator& comm, Transport&) {
    for (uint64_t operation : {1, 2, 3})
      check_allreduce(comm, average(DataType::kFloat32, comm.size()), 10000, operation);
  });
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
