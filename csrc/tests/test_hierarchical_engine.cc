// Engines on pretended hosts, through the C ABI.
#include <algorithm>
#include <numeric>
#include <string>

#include "check.h"
#include "thread_world.h"

TEST(engines_on_three_hosts) {
  WorldOptions options;
  options.transport = HVD_TRANSPORT_HIERARCHICAL;
  options.hosts = {0, 0, 0, 1, 2, 2};
  ThreadWorld(6, options).run([](Rank& rank) {
    auto sum = [&](const std::string& name, size_t count, int set, const std::vector<int>& members) {
      std::vector<float> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 13) + static_cast<float>(rank.rank);
      CHECK(rank.allreduce(name, data, HVD_SUM, set) == HVD_OK);
      const auto ranks = static_cast<float>(std::accumulate(members.begin(), members.end(), 0));
      for (size_t i = 0; i < count; ++i)
        CHECK(data[i] == static_cast<float>(members.size() * (i % 13)) + ranks);
    };
    const std::vector<std::vector<int>> sets = {{0, 1, 2}, {0, 3, 4}, {1, 2, 4, 5}};
    for (int round = 0; round < 3; ++round) {  // the later ones use ids again
      for (size_t count : {1, 1000, 300000}) sum("world", count, 0, {0, 1, 2, 3, 4, 5});
      for (const std::vector<int>& members : sets) {
        int64_t id = 0;
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &id, 0, {members.begin(), members.end()}) == HVD_OK);
        if (std::count(members.begin(), members.end(), rank.rank) > 0) {
          for (size_t count : {1, 1000, 100000}) sum("set", count, static_cast<int>(id), members);
        }
        sum("world", 500, 0, {0, 1, 2, 3, 4, 5});
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, static_cast<int>(id)) == HVD_OK);
      }
    }
  });
}

TEST(a_world_without_hosts_is_refused) {
  const int memory = memfd_create("hvd-test", MFD_CLOEXEC);
  int fds[3][2];
  for (auto& ends : fds) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  }
  const hvd_peer peers[2] = {{"here", 1, 1}, {"there", 2, 0}};
  const int32_t mesh[2] = {fds[2][0], -1};
  hvd_world world{};
  world.struct_size = sizeof world;
  world.rank = 1;
  world.size = 2;
  world.transport = HVD_TRANSPORT_HIERARCHICAL;
  world.peers = peers;
  world.control_fds = &fds[0][0];
  world.liveness_fds = &fds[1][0];
  world.mesh_fds = mesh;
  world.shm_fd = memory;
  CHECK(hvd_create(&world) == nullptr);
  CHECK(std::string(hvd_last_error()).find("hosts") != std::string::npos);
  // Whatever was handed over is closed.
  for (auto& ends : fds) {
    char byte;
    CHECK(read(ends[1], &byte, 1) == 0);
    close(ends[1]);
  }
  CHECK(close(memory) == -1);
}

int main(int argc, char** argv) {
  alarm(120);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
