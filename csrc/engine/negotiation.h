// The coordinator's logic without any I/O: who has which operation ready, do they agree, what runs next and
// with what.
//
// Votes come in, releases come out. An operation is ready when every member of its process set has it (ranks
// that joined count as having it). All releases form one global order, and every rank runs its part of it in
// that order, so overlapping process sets can't deadlock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/messages.h"

namespace hvd {

class Negotiation {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    int size = 1;
    int64_t fusion_threshold = 128 << 20;
    int cache_capacity = 1024;
    bool disable_group_fusion = false;
  };

  struct Release {
    const std::vector<int>* ranks;  // who gets it; valid until the next call of a non-const function
    wire::Operation operation;
  };

  struct Stalled {
    std::string name;
    double seconds;
    std::vector<int> ready, missing;
  };

  explicit Negotiation(Options options);

  // Rank `rank` has this operation ready. `now` only serves the stall report.
  void request(int rank, wire::Descriptor descriptor, Time now);
  // The same by cache id, which must be remembered.
  void cached(int rank, uint32_t id, Time now);
  // What a cache id stands for; nullptr if it is forgotten and the rank must send the whole request.
  const wire::Descriptor* remembered(uint32_t id) const;

  bool has_ready() const { return !ready_.empty(); }
  // What may run now, fused. With `hold_rank_0`, operations that rank 0 takes part in stay back, to be fused
  // later.
  std::vector<Release> release(bool hold_rank_0);
  // Cache ids forgotten since the last call; all ranks must hear of them before the next release.
  std::vector<uint32_t> take_evicted() { return std::move(evicted_); }

  // Operations some ranks have had ready for longer than `limit` while others have not.
  std::vector<Stalled> stalled(Time now, double limit) const;
  // Those not told before.
  std::vector<Stalled> newly_stalled(Time now, double limit);
  bool has_votes() const { return !votes_.empty(); }
  const std::vector<int>* members(int process_set) const;

 private:
  using AgreementPtr = std::shared_ptr<const wire::Agreement>;

  struct Vote {
    int32_t process_set = 0;
    std::string name;
    int32_t kind = 0;
    Time since{};
    int count = 0;
    int last_rank = 0;
    bool reported = false;                                // as stalled
    std::vector<uint8_t> voted;                           // [member]
    AgreementPtr cached;                                  // what the cached votes refer to
    std::vector<std::unique_ptr<wire::Descriptor>> full;  // [member], empty while all votes are cached ones
  };

  struct Ready {
    int32_t audience = 0;       // a process set or kEveryone
    AgreementPtr agreement;     // to run, or
    wire::Operation operation;  // a failure
    std::string fuse_key;       // empty = alone
    int64_t bytes = 0;
  };

  struct CacheEntry {
    AgreementPtr agreement;
    std::string key;
    std::list<uint32_t>::iterator age;
    bool announced = false;  // the ranks have heard what the id stands for
  };

  Vote* vote_for(int rank, int32_t process_set, const std::string& name, int32_t kind, const std::string& key,
                 Time now);
  Stalled describe(const Vote& vote, Time now) const;
  bool complete(const Vote& vote) const;
  void finish_if_complete(const std::string& key);
  void finish(Vote& vote);
  void fail(int32_t audience, int32_t process_set, const std::string& name, int code, std::string text);
  void ready(AgreementPtr agreement);
  wire::Item item_for(const wire::Agreement& agreement);
  std::string apply_process_set_change(const wire::Descriptor& common, int64_t* result);
  void remember(const std::shared_ptr<wire::Agreement>& agreement, const std::string& key);
  void forget(uint32_t id);

  Options options_;
  std::map<int32_t, std::vector<int>> sets_;
  std::vector<uint8_t> joined_;
  int joined_count_ = 0;
  std::unordered_map<std::string, Vote> votes_;
  std::deque<Ready> ready_;
  std::unordered_map<uint32_t, CacheEntry> cache_;
  std::unordered_map<std::string, uint32_t> cache_ids_;
  std::list<uint32_t> ages_;  // least recently used first
  uint32_t next_id_ = 1;
  std::vector<uint32_t> evicted_;
};

// The key of a pending operation: names are matched within a process set.
std::string operation_key(int32_t process_set, const std::string& name);

}  // namespace hvd
