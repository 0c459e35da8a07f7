// The coordinator's logic without any I/O: who has which operation ready, do they agree, what runs next and
// with what.
//
// Votes come in, releases come out. An operation is ready when every member of its process set has it (ranks
// that joined count as having it). All releases form one global order, and every rank runs its part of it in
// that order, so overlapping process sets can't deadlock. Each vote ends once, by the release of what was
// agreed on or by that of a failure, which goes to exactly those that voted.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/agreement_cache.h"
#include "engine/rank_set.h"
#include "hvd.h"
#include "wire/messages.h"

namespace hvd {

class Negotiation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Ranks = std::shared_ptr<const std::vector<int>>;  // sorted

  struct Release {
    Ranks ranks;  // who gets it
    wire::Operation operation;
    int64_t bytes = 0;
    Time since{};  // when the first of it was ready; none for a failure
  };

  struct Question {
    int rank;
    uint32_t id;
  };

  struct Stalled {
    uint64_t number;  // of its first vote: what comes later has a greater one
    std::string name;
    double seconds;
    std::vector<int> ready, missing;
  };

  Negotiation(int size, const hvd_knobs& knobs);

  // Rank `rank` has this operation ready. `now` only serves the stall report.
  void request(int rank, wire::Request request, Time now);
  // The same by cache id.
  void cached(int rank, uint32_t id, Time now);
  // The same of several ranks.
  void votes(const RankSet& ranks, const wire::Vote& vote, Time now);
  // The answer to a question: what the rank meant by an id that is forgotten.
  void resent(int rank, uint32_t id, wire::Request request, Time now);
  // Who must be asked to send which request whole, since the last call.
  std::vector<Question> take_questions() { return std::exchange(questions_, {}); }
  // What a cache id stands for; nullptr if it is forgotten.
  const wire::Request* remembered(uint32_t id) const;

  // From the next release on. Zero, if that was the knob, stays.
  void set_fusion_threshold(int64_t bytes) { fusion_threshold_ = bytes; }
  bool has_ready() const { return !ready_.empty(); }
  // What may run now, fused. Operations whose first member is busy ([rank]) stay back, to be fused later.
  std::vector<Release> release(const std::vector<uint8_t>& busy);
  // Cache ids forgotten since the last call; all ranks must hear of them before the next release.
  std::vector<uint32_t> take_evicted() { return cache_.take_evicted(); }

  // Operations some ranks have had ready for longer than `limit` while others have not; oldest first.
  std::vector<Stalled> stalled(Time now, double limit) const;
  // Since when the oldest of them waits; `now` if there is none.
  Time waits_since(Time now) const;
  // How often each rank was the last one to have an operation ready, and what that cost: the times since the
  // first one had it. What several wait at once counts once.
  struct Late {
    uint64_t times = 0;
    std::chrono::nanoseconds cost{};
    Time until{};  // what is counted
  };
  const std::vector<Late>& late() const { return late_; }
  bool has_votes() const { return !votes_.empty(); }

 private:
  struct Members {
    Ranks ranks;
    RankSet set;  // the same
  };
  struct Vote {
    uint64_t number = 0;  // in order of arrival
    int32_t process_set = 0;
    Ranks ranks;
    std::string name;
    int32_t kind = 0;        // of the first vote
    bool in_person = false;  // joined ranks don't count
    Time since{}, latest{};  // of the first and the last vote
    int count = 0;
    int last_rank = 0;
    RankSet voted;
    AgreementPtr cached;                               // what the cached votes refer to
    std::vector<std::unique_ptr<wire::Request>> full;  // [member], empty while all votes are cached ones
  };

  struct Ready {
    Ranks ranks;
    AgreementPtr agreement;     // to run, or
    wire::Operation operation;  // a failure
    Time since{};               // when it became ready
    bool in_order = false;      // must not overtake anything
    std::string fuse_key;       // empty = alone
    int64_t bytes = 0;
  };

  // A vote that can't be counted yet.
  struct Waiting {
    uint32_t id = 0;  // 0: the whole request is here
    wire::Request request;
    bool asked = false;
  };

  void count(int rank, wire::Request request, Time now);
  void count(int rank, const AgreementCache::Entry& entry, Time now);
  bool count_together(const RankSet& ranks, const wire::Vote& vote, Time since, Time now);
  void count_waiting(int rank, Time now);
  void wait(int rank, Waiting waiting);
  Vote* vote_for(int rank, const wire::Request& request, const std::string& key, Time now);
  Vote& pending(const wire::Request& request, const std::string& key, const Members& members, Time now);
  Members members(std::vector<int> ranks) const;
  std::vector<const Vote*> by_arrival() const;
  Stalled describe(const Vote& vote, Time now) const;
  bool complete(const Vote& vote) const;
  void join(int rank);
  void leave_join(const Vote& vote);
  void finish_if_complete(const std::string& key);
  void finish(Vote& vote);
  void fail(std::vector<int> ranks, int32_t process_set, const std::string& name, const Status& reason,
            bool in_order = false);
  void fail(const Vote& vote, const Status& reason);
  void ready(const Vote& vote, AgreementPtr agreement);
  Status change_process_sets(const wire::Request& common, int64_t* result);
  Status remove_process_set(int32_t id);

  const hvd_knobs knobs_;
  int64_t fusion_threshold_;
  std::map<int32_t, Members> sets_;
  std::vector<uint8_t> joined_;
  int joined_count_ = 0;
  std::unordered_map<std::string, Vote> votes_;
  uint64_t next_number_ = 0;
  std::vector<std::deque<Waiting>> waiting_;  // [rank]; the first one has been asked for
  int ranks_waiting_ = 0;                     // those with any
  std::vector<Question> questions_;
  std::deque<Ready> ready_;
  AgreementCache cache_;
  std::vector<Late> late_;  // [rank]
};

// The key of a pending operation: names are matched within a process set.
std::string operation_key(int32_t process_set, const std::string& name);

}  // namespace hvd
