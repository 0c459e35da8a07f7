// What a rank sends and receives in an allreduce, as the real communicators do it: they are run for this rank
// alone, with peers that always have what it waits for.
#pragma once

#include <cstddef>
#include <vector>

namespace hvd::simulator {

// A rank sends these, then waits for one message from each of those.
struct Round {
  struct Sent {
    int to;
    size_t bytes;
  };
  std::vector<Sent> sent;
  std::vector<int> from;
};

// Values are combined within the host, exchanged in rounds, and shared out there.
struct Block {
  size_t combined = 0, exchanged = 0, shared = 0;  // bytes; of the exchange, those of the rank's share
};

// How the real communicator cuts an allreduce of float32, for rank 0 of hosts with `local` ranks each.
std::vector<Block> blocks_of(int hosts, int local, size_t bytes);
// How many ranks of a host take part in the exchange.
int lanes_of(int hosts, int local, size_t bytes);
// What the first rank of a host does in the exchange of such a share; ranks count as in the world.
std::vector<Round> rounds_of(int host, int hosts, int local, size_t bytes);

}  // namespace hvd::simulator
