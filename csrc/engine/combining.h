// What a rank with others below it in the tree of control connections does with their messages, without any
// I/O: votes of its branches come in, fewer frames for the rank above come out; frames from above come in,
// those for the branches come out.
//
// Votes for an operation are held until all members of its process set that are below have voted (ranks that
// joined are not waited for), and go up as one. Nothing is lost by that: the operation can't run before. What
// changes the meaning of votes (joins, process sets, a shutdown) goes up at once, after the held votes of its
// rank. Ranks that differ over an operation are not held up, either: their requests go up as they come. An
// operation that waits for a rank for too long is the coordinator's to report, so let_go() sends what there
// is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/branches.h"
#include "engine/rank_set.h"
#include "wire/messages.h"

namespace hvd {

class Combining {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Frame = std::vector<uint8_t>;
  struct Down {
    size_t branch;
    Frame frame;
  };

  // In a world of so many ranks.
  Combining(int size, std::vector<Branch> branches);

  // A message, without its length. False if it is malformed.
  bool from_branch(size_t branch, const uint8_t* data, size_t size, Time now);
  bool from_above(const uint8_t* data, size_t size);

  // No vote has been held since before that; Time::max() if let_go() has left none.
  Time held_since() const { return held_since_; }
  // Votes that have been held since then, or for longer, go up.
  void let_go(Time then, Time now);

  // Whether nothing is remembered of operations, as it must be when all have ended; how many process sets
  // there are, and numbers that agreements are known by.
  bool idle() const { return pending_.empty() && joined_.empty() && joins_.empty(); }
  size_t sets() const { return sets_.size(); }
  size_t known() const { return known_.size(); }

  // Whole frames, in order, since the last call.
  std::vector<Frame> take_up();
  std::vector<Down> take_down() { return std::exchange(down_, {}); }

 private:
  // An operation until its release, or failure.
  struct Pending {
    int32_t process_set = 0;
    wire::Vote vote;       // what the held votes are, and the latest of them
    Frame request;         // its bytes, if it is not known by an id
    RankSet held, sent;    // who has voted; `sent` is known above
    Time since{};          // of the first held vote
    bool differs = false;  // ranks mean different things by its name: nothing is held
  };
  struct Known {
    int32_t process_set;
    std::string key;
  };

  void vote(const RankSet& ranks, wire::Vote vote, Time now);
  void in_person(const RankSet& ranks, const wire::Request& request, Time now);
  Pending& pending(const std::string& key, int32_t process_set);
  bool complete(const Pending& pending) const;
  void send(Pending* pending, Time now);
  void send_held_by(const RankSet& ranks, Time now);
  void differ(const std::string& key, int32_t process_set, const RankSet& ranks, Time now);
  template <typename Which>
  void send_those(Which which, Time now);
  void up(const RankSet& ranks, wire::Vote vote);
  void up(const RankSet& ranks, const uint8_t* data, size_t size);
  void close_votes();
  void learn(const wire::Operation& operation, const RankSet& ranks);
  void over(const std::string& key, const RankSet& ranks);

  const int size_;
  const std::vector<Branch> branches_;
  RankSet here_;  // all ranks of the branches
  RankSet joined_;
  std::unordered_map<int, std::string> joins_;        // the key of each joined rank's join
  std::unordered_map<int32_t, RankSet> sets_;         // their members here
  std::unordered_map<uint32_t, Known> known_;         // by id
  std::unordered_map<std::string, Pending> pending_;  // by key
  std::vector<Frame> up_;
  std::vector<wire::Vote> votes_;  // to go up together, of
  RankSet voters_;
  Time held_since_ = Time::max();
  std::vector<Down> down_;
};

}  // namespace hvd
