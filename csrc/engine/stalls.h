// What stands still, and why, in words. Pure: who has voted for what and what each rank does come in, reports
// come out.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/negotiation.h"

namespace hvd {

struct PeerName {
  std::string host;
  int pid = 0;
};

// What is known of a rank, in seconds from now.
struct RankState {
  bool known = false;
  std::string name;      // of its latest operation
  double running = 0.0;  // it has run that for so long; 0: it has ended
  double idle = 0.0;     // since then
};

class Stalls {
 public:
  struct Report {
    enum class Kind { kStall, kHang, kResolved };
    Kind kind{};
    std::string text;                // the message without stacks
    std::vector<std::string> names;  // of the operations, the oldest first
    std::vector<int> ready, missing;
    double seconds = 0.0;
    std::vector<int> ask;  // whose stacks belong to it
  };

  // The first report of something comes after `seconds`, then after twice as long, four times as long ...
  Stalls(double seconds, std::vector<PeerName> peers) : seconds_(seconds), peers_(std::move(peers)) {}

  // `votes`: all operations that some ranks have ready and others have not, the oldest first.
  std::vector<Report> update(const std::vector<Negotiation::Stalled>& votes,
                             const std::vector<RankState>& ranks);
  // How many operations wait for longer than the first limit.
  size_t stalled() const { return stalled_; }
  // The ranks that those of them which were reported wait for, now.
  std::set<int> waited_for() const;
  // Why `vote` is to end the job: the words of the abort.
  static std::string reason_to_stop(const Negotiation::Stalled& vote, double limit);

  std::string name_of(int rank) const;  // "rank 3 (host b, pid 4711)"

 private:
  struct Known {
    double next = 0.0;  // report when it is this old
    double seconds = 0.0;
    std::string text;  // what it is called
    std::vector<std::string> names;
    std::vector<int> missing;
  };

  void votes_that_wait(const std::vector<Negotiation::Stalled>& votes, const std::vector<RankState>& ranks,
                       std::vector<Report>* reports);
  void operations_that_hang(const std::vector<RankState>& ranks, std::vector<Report>* reports);
  std::string explain(int missing, const Negotiation::Stalled& vote,
                      const std::vector<Negotiation::Stalled>& votes,
                      const std::vector<RankState>& ranks) const;
  std::string names_of(const std::vector<int>& ranks) const;
  template <typename Key>
  void forget(std::map<Key, Known>* known, const std::set<Key>& current, std::vector<Report>* reports);

  const double seconds_;
  const std::vector<PeerName> peers_;
  std::map<uint64_t, Known> waiting_;     // by the number of the oldest vote of a group
  std::map<std::string, Known> hanging_;  // by name
  size_t stalled_ = 0;
};

// "0-2, 5"
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace hvd
