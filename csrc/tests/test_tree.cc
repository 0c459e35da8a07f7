// Engines whose control connections form a tree, through the C ABI.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "thread_world.h"

namespace {

// `hosts` hosts with `each` ranks; leaders below each other, `fan_out` of them at most.
WorldOptions tree_of(int hosts, int each, int fan_out) {
  WorldOptions options;
  options.transport = HVD_TRANSPORT_HIERARCHICAL;
  for (int host = 0; host < hosts; ++host)
    for (int i = 0; i < each; ++i) {
      options.hosts.push_back(host);
      options.parents.push_back(i > 0 ? host * each : std::max(host - 1, 0) / fan_out * each);
    }
  return options;
}

std::map<std::string, uint64_t> metrics(Rank& rank) {
  std::vector<uint64_t> values(static_cast<size_t>(hvd_metrics(rank.engine, nullptr, 0)));
  hvd_metrics(rank.engine, values.data(), static_cast<int32_t>(values.size()));
  std::map<std::string, uint64_t> all;
  std::istringstream names(hvd_metric_names());
  std::string name;
  for (uint64_t value : values) {
    CHECK(static_cast<bool>(std::getline(names, name)));
    all[name] = value;
  }
  return all;
}

void sum(Rank& rank, const std::string& name, int set, const std::vector<int>& members) {
  std::vector<float> data(17, static_cast<float>(rank.rank));
  CHECK(rank.allreduce(name, data, HVD_SUM, set) == HVD_OK);
  float expected = 0;
  for (int member : members) expected += static_cast<float>(member);
  for (float value : data) CHECK(value == expected);
}

std::vector<int> first(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

TEST(operations_sets_and_joins_in_deep_trees) {
  for (const WorldOptions& options : {tree_of(4, 2, 1), tree_of(7, 1, 2), tree_of(3, 3, 2)}) {
    const auto size = static_cast<int>(options.hosts.size());
    ThreadWorld(size, options).run([](Rank& rank) {
      const std::vector<int> everyone = first(rank.size), some = {1, rank.size - 2, rank.size - 1};
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 3; ++i) sum(rank, "world", 0, everyone);
        int64_t id = 0;
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &id, 0, {some.begin(), some.end()}) == HVD_OK);
        for (int i = 0; i < 3; ++i)
          if (std::count(some.begin(), some.end(), rank.rank)) sum(rank, "some", static_cast<int>(id), some);
        // Ranks that don't agree are told so, and go on.
        std::vector<float> data(rank.rank == rank.size - 1 ? 5 : 4);
        CHECK(rank.allreduce("differs", data) == HVD_FAILED_PRECONDITION);
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, static_cast<int>(id)) == HVD_OK);
        // The last ranks join; the others go on at once.
        int64_t last = -1;
        const std::vector<int> left = first(rank.size - 2);
        if (rank.rank < rank.size - 2)
          for (int i = 0; i < 3; ++i) sum(rank, "world", 0, left);
        CHECK(rank.simple(HVD_JOIN, "join", &last) == HVD_OK);
        CHECK(last >= 0 && last < rank.size);
      }
    });
  }
}

// Whatever the number of ranks: rank 0 hears its own host's ranks and the leaders right below it, once.
TEST(messages_of_rank_0_are_few) {
  constexpr int kFanOut = 4, kTimes = 50;
  for (int hosts : {5, 16}) {
    constexpr int kEach = 4;
    ThreadWorld(hosts * kEach, tree_of(hosts, kEach, kFanOut)).run([hosts](Rank& rank) {
      const std::vector<int> everyone = first(rank.size);
      for (int i = 0; i < 2; ++i) sum(rank, "x", 0, everyone);
      auto before = metrics(rank);
      for (int i = 0; i < kTimes; ++i) sum(rank, "x", 0, everyone);
      auto after = metrics(rank);
      sum(rank, "end", 0, everyone);  // nobody shuts down before all have looked
      if (rank.rank != 0) return;
      const uint64_t sent = after["control_messages.sent"] - before["control_messages.sent"];
      const uint64_t received = after["control_messages.received"] - before["control_messages.received"];
      constexpr uint64_t kBelow = kFanOut + kEach - 1;
      std::printf("%d ranks: %g sent, %g received for an operation\n", hosts * kEach,
                  static_cast<double>(sent) / kTimes, static_cast<double>(received) / kTimes);
      CHECK(sent == kBelow * kTimes);
      // A thread may be kept from running for so long that votes are let go.
      CHECK(received >= (kTimes - 1) * kBelow && received <= kTimes * kBelow * 3 / 2);
    });
  }
}

// Leaders hold votes until all below have voted, but not for ever: rank 0 has to say who is missing.
TEST(held_votes_are_told_in_time) {
  WorldOptions options = tree_of(3, 3, 1);
  options.knobs.stall_shutdown_time_seconds = 1;
  ThreadWorld(9, options).run([](Rank& rank) {
    std::vector<float> data(4);
    if (rank.rank == 7) return (void)usleep(4000000);
    const hvd_handle handle = rank.allreduce_async("half", data);
    CHECK(rank.wait(handle) == HVD_UNKNOWN);
    const std::string error = hvd_error(rank.engine, handle);
    CHECK(error.find("'half' has waited for rank(s) 7 ") == 0);
  });
}

TEST(a_wrong_tree_is_refused) {
  int control[2], liveness[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, liveness) == 0);
  const hvd_peer peers[2] = {{"here", 1, 1}, {"there", 2, 0}};
  const int32_t parents[2] = {1, 1};
  const int memory = memfd_create("hvd-test", MFD_CLOEXEC);
  CHECK(ftruncate(memory, hvd_shm_bytes(2)) == 0);
  hvd_world world{};
  world.struct_size = sizeof world;
  world.rank = 1;
  world.size = 2;
  world.transport = HVD_TRANSPORT_SHM;
  world.peers = peers;
  world.control_fds = &control[0];
  world.liveness_fds = &liveness[0];
  world.shm_fd = memory;
  world.control_parents = parents;
  CHECK(hvd_create(&world) == nullptr);
  CHECK(std::string(hvd_last_error()).find("control_parents") != std::string::npos);
  for (int end : {control[1], liveness[1]}) {  // whatever was handed over is closed
    char byte;
    CHECK(read(end, &byte, 1) == 0);
    close(end);
  }
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
