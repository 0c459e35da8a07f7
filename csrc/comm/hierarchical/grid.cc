#include "comm/hierarchical/grid.h"

#include <algorithm>
#include <utility>

#include "comm/hierarchical/communicator.h"

namespace hvd {

std::vector<int> rows_of(int size) {
  int rows = 1;
  while ((rows + 1) * (rows + 1) <= size) ++rows;
  // Rows of equal length, unless they would be more than twice as long as there are rows.
  for (int fewer = rows; 2 * fewer * fewer >= size; --fewer) {
    if (size % fewer != 0) continue;
    rows = fewer;
    break;
  }
  std::vector<int> row;
  for (int i = 0; i < rows; ++i) row.insert(row.end(), static_cast<size_t>((size + i) / rows), i);
  return row;
}

int longest_row(int size) {
  if (size <= kMostDirect) return size;
  const std::vector<int> rows = rows_of(size);
  return static_cast<int>(std::count(rows.begin(), rows.end(), rows.back()));
}

std::unique_ptr<Communicator> open_grid(
    std::vector<int> members, int world_rank,
    const std::function<std::unique_ptr<Communicator>(std::vector<int>)>& direct,
    std::vector<std::byte>& staging, const Tuning& tuning) {
  const auto size = static_cast<int>(members.size());
  if (size <= kMostDirect) return direct(std::move(members));
  const auto own = static_cast<int>(std::find(members.begin(), members.end(), world_rank) - members.begin());
  HierarchicalLayout layout(rows_of(size), own);
  auto open = [&](std::vector<int> indices) {
    for (int& index : indices) index = members[static_cast<size_t>(index)];
    return direct(std::move(indices));
  };
  HierarchicalCommunicator::Channels channels;
  channels.local = open(layout.members(layout.host()));
  for (int lane = 0; lane < layout.lanes(); ++lane)
    channels.lanes.push_back(layout.serves(lane) ? open(layout.lane_members(lane)) : nullptr);
  // Every pair has its own data, and a lane's rounds are not everybody's.
  channels.flat = direct(members);
  return std::make_unique<HierarchicalCommunicator>(std::move(layout), std::move(channels), staging, nullptr,
                                                    tuning);
}

}  // namespace hvd
