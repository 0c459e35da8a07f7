// The tree of control connections of simulated ranks: real Combinings, with first-in-first-out queues between
// them. What is delivered next is up to chance.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
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

// The votes that have come to a hub and not gone on, from which follows what it must say of the time that
// they have waited. Times are those of the calls of the hub.
class VoteTimes {
 public:
  void called(int64_t now) { calls_.insert(now); }
  void arrived(const hvd::RankSet& ranks, const hvd::wire::Vote& vote, int64_t now) {
    const int64_t since = now - static_cast<int64_t>(vote.waited_ns);
    ranks.each([&](int rank) { REQUIRE(there_.insert({{rank, meaning(vote)}, {since, now}}).second); });
  }
  // Goes up for these ranks. Returns since when the first of them had waited.
  int64_t left(const hvd::RankSet& ranks, const hvd::wire::Vote& vote) {
    int64_t since = INT64_MAX, latest = 0;
    ranks.each([&](int rank) {
      auto found = there_.find({rank, meaning(vote)});
      REQUIRE(found != there_.end());
      since = std::min(since, found->second.since);
      latest = std::max(latest, found->second.arrived);
      there_.erase(found);
    });
    const int64_t then = since + static_cast<int64_t>(vote.waited_ns);
    REQUIRE(then >= latest && calls_.count(then) == 1);
    return since;
  }

 private:
  struct Times {
    int64_t since, arrived;
  };
  static std::string meaning(const hvd::wire::Vote& vote) {
    if (!vote.request) return std::to_string(vote.id);
    const Frame frame = hvd::wire::encode_request(*vote.request);
    return std::string(frame.begin(), frame.end());
  }

  std::set<int64_t> calls_;
  std::map<std::pair<int, std::string>, Times> there_;
};

class Tree {
 public:
  // Which of the held votes settle() lets go.
  enum class LetGo { kNone, kSome, kAll };
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
        below_(ranks->size()),
        times_(ranks->size()) {
    for (int rank = 0; rank < size_; ++rank) {
      branches_.push_back(hvd::branches_of(rank, parents_));
      const bool relays = rank > 0 && branches_.back().size() > 1;
      hubs_.push_back(relays ? std::make_unique<hvd::Combining>(size_, branches_.back()) : nullptr);
    }
  }

  int parent(int rank) const { return parents_[static_cast<size_t>(rank)]; }

  // A message goes one step: from this rank to where it talks to, or between it and the rank above. What
  // reaches rank 0 is counted(ranks, type, vote). False if there is none.
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

  // Every operation has ended; so many process sets are there, and no more numbers are remembered than that.
  void check_nothing_is_left(size_t sets, size_t remembered) const {
    for (const auto& each : hubs_)
      REQUIRE(!each || (each->idle() && each->sets() == sets && each->known() <= remembered));
  }

  // What was not passed on by chance, and of what is held, what is to be let go.
  bool settle(LetGo which) {
    bool moved = false;
    for (int rank = 0; rank < size_; ++rank) {
      if (hub(rank) == nullptr) continue;
      moved |= !pass_on(rank).empty();
      if (which != LetGo::kNone) moved |= let_go(rank, which == LetGo::kAll);
    }
    return moved;
  }

 private:
  hvd::Combining* hub(int rank) { return hubs_[static_cast<size_t>(rank)].get(); }
  static hvd::Combining::Time at(int64_t time) {
    return hvd::Combining::Time(std::chrono::nanoseconds(time));
  }

  // Neither sooner than asked for nor later, the oldest first.
  bool let_go(int rank, bool all) {
    constexpr auto kNothing = hvd::Combining::Time::max();
    const auto held = hub(rank)->held_since();
    auto then = at(++clock_);
    if (!all) then = held != kNothing && random_.one_in(2) ? held : at(clock_ - random_.below(30));
    times_[static_cast<size_t>(rank)].called(clock_);
    hub(rank)->let_go(then, at(clock_));
    REQUIRE(hub(rank)->held_since() > then && (!all || hub(rank)->held_since() == kNothing));
    const std::vector<int64_t> since = pass_on(rank);
    REQUIRE(since.empty() || held <= then);
    REQUIRE(std::is_sorted(since.begin(), since.end()));
    counts.let_go += since.size();
    return !since.empty();
  }

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
    note_arrival(at, branches[branch], frame);
    REQUIRE(hub(at)->from_branch(branch, frame.data(), frame.size(), Tree::at(clock_)));
    if (random_.one_in(2)) pass_on(at);  // or later, together with others
  }

  void note_arrival(int at, const hvd::Branch& from, const Frame& frame) {
    const uint8_t* data = frame.data();
    size_t size = frame.size();
    hvd::RankSet ranks;
    hvd::wire::Message message;
    REQUIRE(hvd::open_frame(from, size_, &data, &size, &ranks, &message));
    VoteTimes& times = times_[static_cast<size_t>(at)];
    times.called(++clock_);
    for (const hvd::wire::Vote& vote : message.votes) times.arrived(ranks, vote, clock_);
    hvd::wire::Vote one;
    one.id = message.id;
    if (message.type == MessageType::kRequest) one.request = message.request;
    if (one.request || message.type == MessageType::kCached) times.arrived(ranks, one, clock_);
  }

  template <typename Counted>
  void reach_coordinator(const hvd::Branch& from, const Frame& frame, Counted counted) {
    const uint8_t* data = frame.data();
    size_t size = frame.size();
    hvd::RankSet ranks;
    hvd::wire::Message message;
    REQUIRE(hvd::open_frame(from, size_, &data, &size, &ranks, &message));
    if (message.type != MessageType::kVotes) {
      hvd::wire::Vote vote;
      vote.id = message.id;
      ranks.each([&](int rank) { vote.last = rank; });
      if (message.type == MessageType::kRequest || message.type == MessageType::kResent)
        vote.request = message.request;
      return counted(ranks, message.type, vote);
    }
    for (const hvd::wire::Vote& vote : message.votes) {
      counts.combined += ranks.count() > 1;
      counted(ranks, MessageType::kVotes, vote);
    }
  }

  // Returns since when each of the votes that go up had waited.
  std::vector<int64_t> pass_on(int at) {
    std::vector<int64_t> since;
    for (const Frame& frame : hub(at)->take_up()) {
      above_[static_cast<size_t>(at)].push_back(without_length(frame));
      const Frame& body = above_[static_cast<size_t>(at)].back();
      std::vector<int32_t> rows;
      const uint8_t* data = nullptr;
      size_t size = 0;
      hvd::RankSet ranks(size_);
      hvd::wire::Message message;
      REQUIRE(hvd::wire::unwrap(body.data(), body.size(), &rows, &data, &size) && ranks.add_rows(rows) &&
              hvd::wire::decode(data, size, &message));
      for (const hvd::wire::Vote& vote : message.votes)
        since.push_back(times_[static_cast<size_t>(at)].left(ranks, vote));
    }
    for (const auto& down : hub(at)->take_down()) send_down(at, down.branch, down.frame);
    return since;
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
  std::vector<VoteTimes> times_;                       // [rank], of its hub
  int64_t clock_ = 0;
};

}  // namespace sequences
