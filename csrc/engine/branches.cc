#include "engine/branches.h"

namespace hvd {

bool is_tree(const std::vector<int>& parents) {
  const auto size = static_cast<int>(parents.size());
  for (int rank = 0; rank < size; ++rank) {
    int above = rank;
    for (int steps = 0; steps < size && above > 0 && above < size; ++steps)
      above = parents[static_cast<size_t>(above)];
    if (above != 0) return false;
  }
  return !parents.empty() && parents[0] == 0;
}

std::vector<Branch> branches_of(int rank, const std::vector<int>& parents) {
  const auto size = static_cast<int>(parents.size());
  std::vector<Branch> branches;
  std::vector<int> place(parents.size(), -1);  // of the branch that begins with a rank
  auto begin = [&](int below) {
    place[static_cast<size_t>(below)] = static_cast<int>(branches.size());
    branches.push_back({below, RankSet(size), false});
  };
  begin(rank);
  for (int below = 1; below < size; ++below)
    if (below != rank && parents[static_cast<size_t>(below)] == rank) begin(below);
  for (int below = 0; below < size; ++below) {
    int above = below;
    while (above != 0 && place[static_cast<size_t>(above)] < 0) above = parents[static_cast<size_t>(above)];
    const int branch = place[static_cast<size_t>(above)];
    if (branch > 0 || below == rank) branches[static_cast<size_t>(branch)].ranks.add(below);
  }
  for (Branch& branch : branches) branch.leaf = branch.ranks.count() == 1;
  return branches;
}

int next_hop(int from, int to, const std::vector<int>& parents) {
  if (from == to) return -1;
  for (int below = to; below != 0; below = parents[static_cast<size_t>(below)])
    if (parents[static_cast<size_t>(below)] == from) return below;
  return parents[static_cast<size_t>(from)];
}

bool open_frame(const Branch& from, int size, const uint8_t** data, size_t* bytes, RankSet* ranks,
                wire::Message* message) {
  if (wire::type_of(*data, *bytes) != wire::MessageType::kFrom) {
    *ranks = from.ranks;
    return from.leaf && wire::decode(*data, *bytes, message) && message->type != wire::MessageType::kVotes;
  }
  std::vector<int32_t> rows;
  *ranks = RankSet(size);
  if (!wire::unwrap(*data, *bytes, &rows, data, bytes) || !ranks->add_rows(rows) ||
      !from.ranks.covers(*ranks) || !wire::decode(*data, *bytes, message))
    return false;
  if (message->type != wire::MessageType::kVotes) return ranks->count() == 1;
  for (const wire::Vote& vote : message->votes)
    if (vote.last < 0 || vote.last >= size || !ranks->has(vote.last)) return false;
  return true;
}

}  // namespace hvd
