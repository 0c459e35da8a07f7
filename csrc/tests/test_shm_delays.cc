// Collectives over shared memory while ranks are stopped before and after any post and wait, at random: what
// test_shm_protocol explores in a model, here with the real code. The shared-memory part of the core is built
// for this program with HVD_TEST_DELAYS.
//
//   test_shm_delays [name]    HVD_SEED=n replays, HVD_SECONDS=s goes on for so long with every world
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>

#include "comm/shm/group.h"
#include "tests/check.h"
#include "tests/comm_operations.h"

#ifndef HVD_TEST_DELAYS
#error "to be built with HVD_TEST_DELAYS, and comm/shm/*.cc, too"
#endif

namespace {

using namespace suite;
using Clock = std::chrono::steady_clock;

// How often this thread stops, in 1/1024, and what decides.
thread_local size_t stops = 0;
thread_local Random* chance = nullptr;

uint64_t seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("HVD_SEED");
    const uint64_t chosen = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("HVD_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return value;
}

double seconds() {
  const char* given = std::getenv("HVD_SECONDS");
  return given ? std::atof(given) : 0.4;
}

}  // namespace

namespace hvd {

// Mostly nothing, often a moment, sometimes long enough for all others to run as far as they can.
void test_delay() {
  if (chance == nullptr || pick(*chance, 1024) >= stops) return;
  const size_t kind = pick(*chance, 16);
  if (kind < 8) {
    sched_yield();
  } else {
    usleep(static_cast<useconds_t>(kind < 15 ? pick(*chance, 100) : pick(*chance, 3000)));
  }
}

}  // namespace hvd

namespace {

// A rank that dawdles, hurries or is like the others, anew for each operation.
void dawdle(Random& random) {
  constexpr size_t kStops[] = {0, 0, 64, 512};
  stops = kStops[pick(random, std::size(kStops))];
}

size_t bytes_of_up_to_eight_steps(Random& random, int size) {
  constexpr size_t kStep = 24 << 10;
  switch (pick(random, 4)) {
    case 0:
      return pick(random, 120);
    case 1:
      return pick(random, 40000);
    default:
      return pick(random, 8 * kStep * static_cast<size_t>(size));
  }
}

// The same sequence on every rank, in the world and in two groups of it that overlap.
void mix(int size) {
  World world(Kind::kShm, size);
  constexpr uint64_t kOpen = ~uint64_t{0};
  std::atomic<uint64_t> last{kOpen};  // operation; rank 0 decides before anybody can be there
  on_threads(size, [&](int rank) {
    Random mine(seed() * 31 + static_cast<uint64_t>(rank)), shared(seed());
    chance = &mine;
    own_heap = world.heap(rank);
    std::vector<std::vector<int>> sets = {world.everyone()};
    if (size > 2) {
      sets.push_back({0, size - 1});
      sets.emplace_back(sets[0].begin() + 1, sets[0].end());
    }
    std::vector<std::unique_ptr<Communicator>> open;
    for (size_t id = 0; id < sets.size(); ++id) {
      const bool member = std::count(sets[id].begin(), sets[id].end(), rank) > 0;
      open.push_back(member ? world.transport(rank).open(static_cast<int>(id), sets[id]) : nullptr);
    }
    const auto end = Clock::now() + std::chrono::duration<double>(seconds());
    for (uint64_t operation = 1; operation <= last; ++operation) {
      const size_t id = pick(shared, 3) > 0 ? 0 : pick(shared, sets.size());
      const size_t bytes = bytes_of_up_to_eight_steps(shared, static_cast<int>(sets[id].size()));
      dawdle(mine);
      if (open[id]) random_operation(*open[id], bytes, seed() + operation);
      if (operation % 16 > 0) continue;
      if (rank == 0 && last == kOpen && Clock::now() > end) last = operation + 16;
      CHECK(open[0]->barrier().ok());
    }
    chance = nullptr;
    if (rank == 0)
      std::printf("  %d ranks: %llu operations\n", size, static_cast<unsigned long long>(last.load()));
  });
}

}  // namespace

TEST(two_ranks) { mix(2); }
TEST(three_ranks) { mix(3); }
TEST(four_ranks) { mix(4); }
TEST(five_ranks) { mix(5); }

// What was overwritten: results of an allreduce that the others had not fetched, by a broadcast after it.
TEST(a_broadcast_right_after_an_allreduce) {
  run_ranks(Kind::kShm, 3, [](Communicator& comm, Transport&) {
    Random mine(seed() + static_cast<uint64_t>(comm.rank()));
    chance = &mine;
    for (uint64_t operation = 0; operation < 60; ++operation) {
      dawdle(mine);
      if (comm.rank() == 0) stops = 0;  // the root hurries
      check_allreduce(comm, {DataType::kFloat32, ReduceOp::kSum, 1.0}, 40000, operation);
      check_broadcast(comm, 300000, 0, operation);
    }
    chance = nullptr;
  });
}

int main(int argc, char** argv) {
  alarm(600 + static_cast<unsigned>(4 * seconds()));  // a hang is a failure, too
  return check::run_all(argc, argv);
}
