#include "engine/stalls.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace hvd {
namespace {

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

// "grad.7", "grad.7 (and 12 more)"
std::string subject(const std::vector<std::string>& names) {
  return names.front() +
         (names.size() > 1 ? " (and " + std::to_string(names.size() - 1) + " more)" : std::string());
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string Stalls::name_of(int rank) const {
  const PeerName& peer = peers_[static_cast<size_t>(rank)];
  return "rank " + std::to_string(rank) + " (host " + peer.host + ", pid " + std::to_string(peer.pid) + ")";
}

std::string Stalls::names_of(const std::vector<int>& ranks) const {
  constexpr size_t kInFull = 8;
  if (ranks.size() > kInFull) return "ranks " + rank_ranges(ranks);
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + name_of(rank);
  return text;
}

std::string Stalls::reason_to_stop(const Negotiation::Stalled& vote, double limit) {
  std::string ranks;
  for (int rank : vote.missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "'" + vote.name + "' has waited for rank(s) " + ranks + " for more than " +
         std::to_string(static_cast<int>(limit)) + " seconds (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS).";
}

std::vector<Stalls::Report> Stalls::update(const std::vector<Negotiation::Stalled>& votes,
                                           const std::vector<RankState>& ranks) {
  std::vector<Report> reports;
  if (seconds_ <= 0) return reports;
  votes_that_wait(votes, ranks, &reports);
  operations_that_hang(ranks, &reports);
  return reports;
}

// Those that wait for the same ranks are one matter: a rank that is late with one gradient is so with all.
void Stalls::votes_that_wait(const std::vector<Negotiation::Stalled>& votes,
                             const std::vector<RankState>& ranks, std::vector<Report>* reports) {
  std::map<std::vector<int>, std::vector<const Negotiation::Stalled*>> groups;  // by who is missing
  stalled_ = 0;
  for (const Negotiation::Stalled& vote : votes) {
    groups[vote.missing].push_back(&vote);
    stalled_ += vote.seconds >= seconds_;
  }
  std::set<uint64_t> current;
  for (const Negotiation::Stalled& vote : votes) {
    // It still waits, but for the same ranks as an older one by now: a report of that is of both.
    if (groups[vote.missing].front()->number != vote.number) waiting_.erase(vote.number);
  }
  for (const auto& [missing, group] : groups) {
    const Negotiation::Stalled& oldest = *group.front();
    if (oldest.seconds < seconds_) continue;
    current.insert(oldest.number);
    Known& known = waiting_.try_emplace(oldest.number, Known{seconds_, 0.0, {}, {}, {}}).first->second;
    known.seconds = oldest.seconds;
    known.missing = missing;
    known.names.clear();
    for (const Negotiation::Stalled* vote : group) known.names.push_back(vote->name);
    known.text = subject(known.names);
    if (oldest.seconds < known.next) continue;
    known.next = seconds_ * std::exp2(std::floor(std::log2(oldest.seconds / seconds_)) + 1);
    Report report{Report::Kind::kStall, "", known.names, oldest.ready, missing, oldest.seconds, missing};
    report.text = known.text + " has waited " + in_seconds(oldest.seconds) + " for " + names_of(missing) +
                  "; ready: " + rank_ranges(oldest.ready) + ".";
    constexpr size_t kNames = 6;
    report.text += "\nMissing on rank(s) " + rank_ranges(missing) + ":";
    for (size_t i = 0; i < known.names.size() && i < kNames; ++i)
      report.text += (i ? ", " : " ") + known.names[i];
    if (known.names.size() > kNames)
      report.text += ", and " + std::to_string(known.names.size() - kNames) + " more";
    for (int rank : missing) report.text += explain(rank, oldest, votes, ranks);
    reports->push_back(std::move(report));
  }
  forget(&waiting_, current, reports);
}

std::set<int> Stalls::waited_for() const {
  std::set<int> ranks;
  for (const auto& each : waiting_) ranks.insert(each.second.missing.begin(), each.second.missing.end());
  return ranks;
}

// What the votes and its own words tell of a rank that others wait for.
std::string Stalls::explain(int missing, const Negotiation::Stalled& vote,
                            const std::vector<Negotiation::Stalled>& votes,
                            const std::vector<RankState>& ranks) const {
  for (const Negotiation::Stalled& other : votes) {
    if (!contains(other.ready, missing)) continue;
    std::vector<int> apart;
    for (int rank : vote.ready)
      if (contains(other.missing, rank)) apart.push_back(rank);
    if (!apart.empty())
      return "\nRank " + std::to_string(missing) + " waits in " + other.name + ", which rank(s) " +
             rank_ranges(apart) + " have not submitted: the ranks run different code.";
  }
  const RankState& state = ranks[static_cast<size_t>(missing)];
  if (!state.known) return "";
  const std::string begin = "\nRank " + std::to_string(missing);
  if (state.name.empty()) return begin + " has not run any operation yet.";
  if (state.running > 0)
    return begin + " has been in " + state.name + " for " + in_seconds(state.running) + ".";
  return begin + ": its last operation, " + state.name + ", ended " + in_seconds(state.idle) + " ago.";
}

// Released, begun, and not at its end: in a transport, or in a callback of the application's.
void Stalls::operations_that_hang(const std::vector<RankState>& ranks, std::vector<Report>* reports) {
  std::map<std::string, std::vector<int>> running;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].known && ranks[rank].running >= seconds_)
      running[ranks[rank].name].push_back(static_cast<int>(rank));
  std::set<std::string> current;
  for (const auto& [name, in_it] : running) {
    current.insert(name);
    double seconds = 0.0;
    for (int rank : in_it) seconds = std::max(seconds, ranks[static_cast<size_t>(rank)].running);
    Known& known = hanging_.try_emplace(name, Known{seconds_, 0.0, name, {name}, {}}).first->second;
    known.seconds = seconds;
    if (seconds < known.next) continue;
    known.next = seconds_ * std::exp2(std::floor(std::log2(seconds / seconds_)) + 1);
    std::vector<int> elsewhere;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (!contains(in_it, static_cast<int>(rank))) elsewhere.push_back(static_cast<int>(rank));
    Report report{Report::Kind::kHang, "", {name}, in_it, elsewhere, seconds, {}};
    report.text = name + " was started and has not ended for " + in_seconds(seconds) + " on " +
                  names_of(in_it) + "; all ranks had it ready.";
    if (!elsewhere.empty()) report.text += "\nNot in it: rank(s) " + rank_ranges(elsewhere) + ".";
    for (size_t rank = 0; rank < ranks.size(); ++rank) report.ask.push_back(static_cast<int>(rank));
    reports->push_back(std::move(report));
  }
  forget(&hanging_, current, reports);
}

template <typename Key>
void Stalls::forget(std::map<Key, Known>* known, const std::set<Key>& current, std::vector<Report>* reports) {
  for (auto each = known->begin(); each != known->end();) {
    if (current.count(each->first) > 0) {
      ++each;
      continue;
    }
    const Known& over = each->second;
    Report report{Report::Kind::kResolved, "", over.names, {}, {}, over.seconds, {}};
    report.text = over.text + " goes on, after it had waited for at least " + in_seconds(over.seconds) + ".";
    reports->push_back(std::move(report));
    each = known->erase(each);
  }
}

}  // namespace hvd
