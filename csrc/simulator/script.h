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
  size_t combined = 0, shared = 0;  // bytes in all
  std::vector<Round> rounds;        // none: this rank has no share
};

// Of hosts with `local` ranks each; an allreduce of float32.
std::vector<Block> script_of(int rank, int hosts, int local, size_t bytes);

}  // namespace hvd::simulator
