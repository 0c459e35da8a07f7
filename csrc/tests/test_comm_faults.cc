// Collectives that cannot complete end soon, with the best explanation there is.
#include <chrono>
#include <string>

#include "comm/communicator.h"
#include "tests/check.h"
#include "tests/comm_suite.h"

namespace {

using namespace suite;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const Reduction kSum = {};

bool mentions(const Status& status, const char* text) { return status.text().find(text) != std::string::npos; }

using Collective = std::function<Status(Communicator&)>;

// Something every rank must wait in when the last one does not come.
std::vector<Collective> collectives(Bytes& memory) {
  auto all = [&memory](size_t bytes) { return Pieces{{memory.data(), bytes}}; };
  std::vector<Collective> list = {[](Communicator& comm) { return comm.barrier(); }};
  for (size_t bytes : {size_t{4}, size_t{20000}, size_t{4} << 20}) {
    list.push_back([=](Communicator& comm) { return comm.allreduce(kSum, all(bytes), all(bytes)); });
    list.push_back([=](Communicator& comm) {
      return comm.allgather(all(bytes), std::vector<Pieces>(static_cast<size_t>(comm.size()), all(bytes)));
    });
    list.push_back([=](Communicator& comm) { return comm.broadcast(all(bytes), comm.size() - 1); });
    list.push_back([=](Communicator& comm) {
      return comm.alltoall(std::vector<Pieces>(static_cast<size_t>(comm.size()), all(bytes)),
                           std::vector<Pieces>(static_cast<size_t>(comm.size()), all(bytes)));
    });
    list.push_back([=](Communicator& comm) {
      return comm.reducescatter(kSum, std::vector<Pieces>(static_cast<size_t>(comm.size()), all(bytes)), all(bytes));
    });
  }
  return list;
}

}  // namespace

TEST(abort_ends_stuck_collectives) {
  for (Kind kind : kKinds) {
    Bytes unused;
    const size_t count = collectives(unused).size();
    for (size_t which = 0; which < count; ++which) {
      World world(kind, 3);
      Clock::time_point raised;
      // Rank 2 does not take part; it raises the signal instead, once the others had time to get stuck.
      on_threads(3, [&](int rank) {
        if (rank == 2) {
          std::this_thread::sleep_for(milliseconds(5));
          raised = Clock::now();
          for (int peer : {0, 1}) world.abort(peer).raise(Status::unknown("rank 2 was killed by signal 9"));
          return;
        }
        Bytes memory(size_t{4} << 20);
        auto comm = world.transport(rank).open(0, world.everyone());
        Status status = collectives(memory)[which](*comm);
        CHECK(status.code() == HVD_UNKNOWN && mentions(status, "rank 2 was killed by signal 9"));
        CHECK(Clock::now() - raised < milliseconds(100));
      });
    }
  }
}

TEST(a_closed_connection_names_the_rank) {
  for (Kind kind : {Kind::kUnix, Kind::kTcp}) {
    for (size_t bytes : {size_t{4}, size_t{4} << 20}) {
      World world(kind, 3);
      world.leave(1);
      on_threads(2, [&](int index) {
        int rank = 2 * index;
        Bytes memory(bytes);
        auto comm = world.transport(rank).open(0, world.everyone());
        Pieces pieces = {{memory.data(), bytes}};
        Status status = comm->allreduce(kSum, pieces, pieces);
        CHECK(status.code() == HVD_UNKNOWN && mentions(status, "rank 1"));
      });
    }
  }
}

TEST(the_abort_reason_beats_the_closed_connection) {
  World world(Kind::kTcp, 2);
  world.leave(1);
  std::thread watcher([&] {
    std::this_thread::sleep_for(milliseconds(20));
    world.abort(0).raise(Status::unknown("rank 1 on host h ran out of memory"));
  });
  auto comm = world.transport(0).open(0, {0, 1});
  Status status = comm->barrier();
  watcher.join();
  CHECK(status.code() == HVD_UNKNOWN && mentions(status, "ran out of memory"));
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
