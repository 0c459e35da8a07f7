// The tree of control and liveness connections, as one rank of it sees it. Rank 0 is the root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/agreement.h"
#include "engine/rank_set.h"
#include "wire/messages.h"

namespace hvd {

// What is reached through one connection: the rank at its other end, and those below that.
struct Branch {
  int rank;
  RankSet ranks;
  bool leaf;  // nobody is below
};

// Whether `parents`, the rank above each, and of rank 0 itself, lead to rank 0 from everywhere.
bool is_tree(const std::vector<int>& parents);

// Those of a rank, with the connection to its own engine first, then in order of the ranks. is_tree() holds.
std::vector<Branch> branches_of(int rank, const std::vector<int>& parents);

// The rank, next to `from`, over which the way to `to` leads: below it, or else the one above; -1 if they are
// the same. is_tree() holds.
int next_hop(int from, int to, const std::vector<int>& parents);

// A message, without its length, that has come from a branch of a rank in a world of `size` ranks: whose it
// is, and what. False if it is malformed. *data and *bytes are then the message of those ranks.
bool open_frame(const Branch& from, int size, const uint8_t** data, size_t* bytes, RankSet* ranks,
                wire::Message* message);

// Calls send(branch, frame) so that `frame` comes to these ranks. `named`: the frame itself does not tell
// whom it is for.
template <typename Send>
void address(const std::vector<Branch>& branches, const RankSet& ranks, bool named,
             const std::vector<uint8_t>& frame, Send send) {
  // This rank's own engine, the first branch, comes last: it may end with this message, or run for long.
  for (size_t i = branches.size(); i-- > 0;) {
    const Branch& branch = branches[i];
    if (!branch.ranks.meets(ranks)) continue;
    if (!named || branch.leaf) {
      send(i, frame);
      continue;
    }
    RankSet part = branch.ranks;
    part &= ranks;
    send(i, wire::wrap(wire::MessageType::kTo, part.rows(), frame.data() + sizeof(uint32_t),
                       frame.size() - sizeof(uint32_t)));
  }
}

// The same with what is released to `members` of a process set; a branch is told only the columns of its own.
template <typename Send>
void address_release(const std::vector<Branch>& branches, int size, const std::vector<int>& members,
                     const wire::Operation& operation, Send send) {
  if (!differs_by_member(operation)) {
    RankSet ranks(size);
    for (int rank : members) ranks.add(rank);
    // What runs goes to all members of its process set, which everyone knows.
    return address(branches, ranks, operation.code != HVD_OK, wire::encode_operation(operation), send);
  }
  for (size_t i = branches.size(); i-- > 0;) {
    std::vector<int> here;
    for (size_t member = 0; member < members.size(); ++member)
      if (branches[i].ranks.has(members[member])) here.push_back(static_cast<int>(member));
    if (!here.empty()) send(i, wire::encode_operation(told_to(here, operation)));
  }
}

}  // namespace hvd
