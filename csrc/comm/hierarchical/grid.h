// Many members that are all connected alike, as those of a lane over many hosts, exchange in two steps:
// within rows, then between rows. Each then sends about 2 sqrt(n) messages instead of n, of the same bytes in
// all. An alltoall goes directly.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/tuning.h"

namespace hvd {

// Up to so many combine all values in their order, without rows.
constexpr int kMostDirect = 16;

// The row of each member. Rows are neighbours, of about as many members as there are rows; their lengths
// differ by one at most, and not at all where that is possible.
std::vector<int> rows_of(int size);

// Among how many such members the longest messages of an allreduce are dealt out: those of a row, or all.
int longest_row(int size);

// `direct` opens a communicator of some members (world ranks) that sends everything directly; `staging` grows
// when needed and serves one collective at a time.
std::unique_ptr<Communicator> open_grid(
    std::vector<int> members, int world_rank,
    const std::function<std::unique_ptr<Communicator>(std::vector<int>)>& direct,
    std::vector<std::byte>& staging, const Tuning& tuning);

}  // namespace hvd
