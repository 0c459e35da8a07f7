// The tree of control connections of simulated ranks: real Combinings, with first-in-first-out queues between
// them. What is delivered next is up to chance.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/branches.h"
#include "engine/combining.h"
#include "negotiation_program.h"

namespace sequences {

// A tree of ranks that is up to three steps high; a quarter of them are one step high.
inline std::vector<int> some_tree(Random& random, int size) {
  std::vector<int> parents(static_cast<size_t>(size), 0), height(parents), below(parents);
  if (random.one_in(4)) return parents;
  const int fan_out = 2 + random.below(2);
  for (size_t rank = 1; rank < parents.size(); ++rank) {
    size_t above = 0;
    do {
      above = static_cast<size_t>(random.below(static_cast<int>(rank)));
    } while (above > 0 && (below[above] == fan_out || height[above] == 3));
    below[above]++;
    height[rank] = height[above] + 1;
    parents[rank] = static_cast<int>(above);
  }
  return parents;
}

class Tree {
 public:
  struct Counts {
    size_t combined, let_go, named;
  };
  inline static Counts counts{};

  Tree(Random& random, std::vector<Rank>* ranks)
      : random_(random),
        ranks_(*ranks),
        size_(static_cast<int>(ranks->size())),
        parents_(some_tree(random, size_)),
        above_(ranks->size()),
        below_(ranks->size()) {
    for (int rank = 0; rank < size_; ++rank) {
      branches_.push_back(hvd::branches_of(rank, parents_));
      const bool relays = rank > 0 && branches_.back().size() > 1;
      hubs_.push_back(relays ? std::make_unique<hvd::Combining>(size_, branches_.back()) : nullptr);
    }
  }

  int parent(int rank) const { return parents_[static_cast<size_t>(rank)]; }

  // A message goes one step: from this rank to where it talks to, or between it and the rank above. What
  // reaches rank 0 is counted(rank, type, id, request or nullptr). False if there is none.
  template <typename Counted>
  bool deliver(Rank& rank, Counted counted) {
    const auto number = static_cast<size_t>(rank.number);
    const int first = random_.below(3);
    for (int i = 0; i < 3; ++i) {
      const int which = (first + i) % 3;
      if (which == 0 && deliver_down(rank)) return true;
      if (which == 0) continue;
      std::deque<Frame>& queue = which == 1 ? rank.outbox : above_[number];
      if (queue.empty()) continue;
      const Frame frame = take(&queue);
      const bool own = which == 1 && (rank.number == 0 || hub(rank.number) != nullptr);
      arrive(own ? rank.number : parents_[number], rank.number, frame, counted);
      return true;
    }
    return false;
  }

  // Only what comes from above.
  bool deliver_down(Rank& rank) {
    std::deque<Frame>& queue = below_[static_cast<size_t>(rank.number)];
    if (queue.empty()) return false;
    const Frame frame = take(&queue);
    REQUIRE(hub(rank.number)->from_above(frame.data(), frame.size()));
    pass_on(rank.number);
    return true;
  }

  // From rank 0; see hvd::address().
  void send_to(const std::vector<int>& ranks, bool named, const Frame& frame) {
    hvd::RankSet set(size_);
    for (int rank : ranks) set.add(rank);
    hvd::address(branches_[0], set, named, frame, [&](size_t branch, const Frame& part) {
      counts.named += part.size() != frame.size();
      send_down(0, branch, part);
    });
  }

  void release(const std::vector<int>& ranks, const hvd::wire::Operation& operation) {
    const size_t whole = hvd::wire::encode_operation(operation).size();
    hvd::address_release(branches_[0], size_, ranks, operation, [&](size_t branch, const Frame& part) {
      counts.named += part.size() > whole;
      send_down(0, branch, part);
    });
  }

  // Every operation has ended, and so many process sets are there.
  void check_nothing_is_left(size_t sets) const {
    for (const auto& each : hubs_) REQUIRE(!each || (each->idle() && each->sets() == sets));
  }

  // What was not passed on by chance, and if `late`, what is held.
  bool settle(bool late) {
    bool moved = false;
    for (int rank = 0; rank < size_; ++rank) {
      if (hub(rank) == nullptr) continue;
      if (late) hub(rank)->let_go(now(), now());
      REQUIRE(!late || hub(rank)->held_since() == hvd::Combining::Time::max());
      const size_t before = above_[static_cast<size_t>(rank)].size();
      pass_on(rank);
      const size_t more = above_[static_cast<size_t>(rank)].size() - before;
      counts.let_go += late ? more : 0;
      moved |= more > 0;
    }
    return moved;
  }

 private:
  hvd::Combining* hub(int rank) { return hubs_[static_cast<size_t>(rank)].get(); }
  hvd::Combining::Time now() { return hvd::Combining::Time(std::chrono::nanoseconds(++clock_)); }

  static Frame take(std::deque<Frame>* queue) {
    Frame frame = std::move(queue->front());
    queue->pop_front();
    return frame;
  }

  // At the hub of a rank, from one below it, or from itself.
  template <typename Counted>
  void arrive(int at, int from, const Frame& frame, Counted counted) {
    const auto& branches = branches_[static_cast<size_t>(at)];
    size_t branch = 0;
    while (branches[branch].rank != from) ++branch;
    if (at == 0) return reach_coordinator(branches[branch], frame, counted);
    REQUIRE(hub(at)->from_branch(branch, frame.data(), frame.size(), now()));
    if (random_.one_in(2)) pass_on(at);  // or later, together with others
  }

  template <typename Counted>
  void reach_coordinator(const hvd::Branch& from, const Frame& frame, Counted counted) {
    const uint8_t* data = frame.data();
    size_t size = frame.size();
    hvd::RankSet ranks;
    hvd::wire::Message message;
    REQUIRE(hvd::open_frame(from, size_, &data, &size, &ranks, &message));
    if (message.type != MessageType::kVotes) {
      const Request* whole = message.type == MessageType::kCached ? nullptr : &message.request;
      return ranks.each([&](int rank) { counted(rank, message.type, message.id, whole); });
    }
    for (const hvd::wire::Vote& vote : message.votes) {
      counts.combined += ranks.count() > 1;
      auto one = [&](int rank) {
        counted(rank, vote.request ? MessageType::kRequest : MessageType::kCached, vote.id,
                vote.request ? &*vote.request : nullptr);
      };
      ranks.each([&](int rank) {
        if (rank != vote.last) one(rank);
      });
      one(vote.last);
    }
  }

  void pass_on(int at) {
    for (const Frame& frame : hub(at)->take_up())
      above_[static_cast<size_t>(at)].push_back(without_length(frame));
    for (const auto& down : hub(at)->take_down()) send_down(at, down.branch, down.frame);
  }

  void send_down(int from, size_t branch, const Frame& frame) {
    const int to = branches_[static_cast<size_t>(from)][branch].rank;
    const bool own = branch == 0 || hub(to) == nullptr;
    (own ? ranks_[static_cast<size_t>(to)].inbox : below_[static_cast<size_t>(to)])
        .push_back(without_length(frame));
  }

  Random& random_;
  std::vector<Rank>& ranks_;
  const int size_;
  const std::vector<int> parents_;
  std::vector<std::vector<hvd::Branch>> branches_;     // [rank]
  std::vector<std::unique_ptr<hvd::Combining>> hubs_;  // [rank], of those with others below, but rank 0
  std::vector<std::deque<Frame>> above_, below_;       // [rank]: from its hub to the one above, and back
  int64_t clock_ = 0;
};

}  // namespace sequences
