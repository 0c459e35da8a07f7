// Collectives that cannot complete end soon, with the best explanation there is.
#include <algorithm>
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

bool mentions(const Status& status, const char* text) {
  return status.text().find(text) != std::string::npos;
}

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
      return comm.reducescatter(kSum, std::vector<Pieces>(static_cast<size_t>(comm.size()), all(bytes)),
                                all(bytes));
    });
  }
  return list;
}

// How long it took ranks 0 and 1 to leave the collective that rank 2 does not come to, from the raised signal
// on.
double seconds_to_leave(Kind kind, size_t which) {
  World world(kind, 3);
  Clock::time_point raised;
  double longest[2] = {};
  on_threads(3, [&](int rank) {
    if (rank == 2) {
      // The others should be stuck by then; if not, they meet the signal on their way in, which is as good.
      std::this_thread::sleep_for(milliseconds(5));
      raised = Clock::now();
      for (int peer : {0, 1}) world.abort(peer).raise(Status::unknown("rank 2 was killed by signal 9"));
      return;
    }
    Bytes memory(size_t{4} << 20);
    auto comm = world.transport(rank).open(0, world.everyone());
    auto entered = Clock::now();
    Status status = collectives(memory)[which](*comm);
    CHECK(status.code() == HVD_UNKNOWN && mentions(status, "rank 2 was killed by signal 9"));
    longest[rank] = std::chrono::duration<double>(Clock::now() - std::max(raised, entered)).count();
  });
  return std::max(longest[0], longest[1]);
}

}  // namespace

TEST(abort_ends_stuck_collectives) {
  Bytes unused;
  const size_t count = collectives(unused).size();
  for (Kind kind : kKinds) {
    for (size_t which = 0; which < count; ++which) {
      // On a busy machine a thread may not get a processor for longer than that.
      bool quick = false;
      for (int attempt = 0; attempt < 50 && !quick; ++attempt) quick = seconds_to_leave(kind, which) < 0.1;
      CHECK(quick);
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

TEST(an_error_of_mpi_names_the_rank) {
  for (int size : {2, 3}) {
    World world(Kind::kMpi, size);
    fake_mpi::reset(1);
    Bytes memory(100);
    Pieces pieces = {{memory.data(), memory.size()}};
    auto comm = world.transport(0).open(0, world.everyone());
    Status status = comm->allreduce(kSum, pieces, pieces);
    CHECK(status.code() == HVD_UNKNOWN && mentions(status, "rank 1"));
    CHECK(mentions(status, "code 5 of the test"));
  }
}

TEST(handles_have_a_width_that_an_mpi_has) {
  hvd_mpi mpi = fake_mpi::table<int>(0);
  mpi.handle_bytes = 2;
  CHECK(hvd::make_mpi_calls(mpi) == nullptr);
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
