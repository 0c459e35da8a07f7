// A world whose second rank, if it has one, is played by the test.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "check.h"
#include "hvd.h"
#include "test_knobs.h"

// A world of one rank, or of two in which only `rank` is there.
struct HalfWorld {
  explicit HalfWorld(int rank, int size) {
    const int pid = getppid();  // a living process, so that it is watched
    for (int i = 0; i < 2; ++i) peers[i] = {"here", i == rank ? getpid() : pid, 1};
    for (int* fds : {control, liveness}) {
      int pair[2];
      if (size == 1) break;
      CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
      fds[rank == 0 ? 1 : 0] = pair[0];
      others.push_back(pair[1]);
      handed_over++;
    }
    world.struct_size = sizeof world;
    world.rank = rank;
    world.size = size;
    world.transport = size == 1 ? HVD_TRANSPORT_SINGLE : HVD_TRANSPORT_SHM;
    world.peers = peers;
    world.control_fds = control;
    world.liveness_fds = liveness;
    if (size > 1) {
      world.shm_fd = memfd_create("hvd-test", MFD_CLOEXEC);
      CHECK(world.shm_fd >= 0 && ftruncate(world.shm_fd, hvd_shm_bytes(2)) == 0);
      handed_over++;
    }
    world.knobs = &knobs;
    world.affinity = -1;
    world.local_size = size;
  }

  int handed_over = 0;
  std::vector<int> others;  // the missing rank's ends: control, liveness
  hvd_peer peers[2];
  int32_t control[2] = {-1, -1}, liveness[2] = {-1, -1};
  hvd_knobs knobs = test_knobs();
  hvd_world world{};
};
