#include "engine/negotiation.h"

#include <algorithm>

#include "comm/transport.h"
#include "engine/agreement.h"
#include "kinds.h"

namespace hvd {
namespace {

using wire::Agreement;
using wire::Operation;
using wire::Request;

// Names made from a counter never come back: remembering them would only push out others.
bool worth_remembering(const Request& request) {
  return !has(request.kind, kOfAllRanks) && request.name.find(".noname.") == std::string::npos;
}

template <typename T>
void append(std::string* key, T value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Operations with the same key may run as one.
std::string fuse_key(const Request& request) {
  std::string key;
  append(&key, request.kind);
  append(&key, request.process_set);
  append(&key, request.root_rank);
  append(&key, request.op);
  append(&key, request.tensors.front().type);
  append(&key, request.prescale);
  append(&key, request.postscale);
  return key;
}

}  // namespace

std::string operation_key(int32_t process_set, const std::string& name) {
  std::string key;
  key.reserve(sizeof process_set + name.size());
  append(&key, process_set);
  return key.append(name);
}

Negotiation::Negotiation(int size, const hvd_knobs& knobs)
    : knobs_(knobs),
      fusion_threshold_(knobs.fusion_threshold),
      joined_(static_cast<size_t>(size), 0),
      waiting_(static_cast<size_t>(size)),
      cache_(knobs.cache_capacity),
      late_(static_cast<size_t>(size)) {
  std::vector<int> world;
  for (int rank = 0; rank < size; ++rank) world.push_back(rank);
  sets_[0] = members(std::move(world));
}

Negotiation::Members Negotiation::members(std::vector<int> ranks) const {
  RankSet set(static_cast<int>(joined_.size()));
  for (int rank : ranks) set.add(rank);
  return {std::make_shared<const std::vector<int>>(std::move(ranks)), std::move(set)};
}

// ---- votes in the order in which their rank sent them
// A rank that names a forgotten id is asked for the whole request. What it sent after that waits for the
// answer: counted before, its join would stand in for an operation that the rank itself has ready, and a
// process set could be gone, or be another one.

void Negotiation::request(int rank, Request request, Time now) {
  if (waiting_[static_cast<size_t>(rank)].empty()) return count(rank, std::move(request), now);
  wait(rank, {0, std::move(request)});
}

void Negotiation::cached(int rank, uint32_t id, Time now) {
  const AgreementCache::Entry* entry = cache_.find(id);
  if (entry != nullptr && waiting_[static_cast<size_t>(rank)].empty()) return count(rank, *entry, now);
  wait(rank, {id, {}});
}

// The last one to vote comes last, as it did.
void Negotiation::votes(const RankSet& ranks, const wire::Vote& vote, Time now) {
  const Time since = now - std::chrono::nanoseconds(vote.waited_ns);
  if (!vote.request && count_together(ranks, vote, since, now)) return;
  auto one = [&](int rank, Time when) {
    if (vote.request) {
      request(rank, *vote.request, when);
    } else {
      cached(rank, vote.id, when);
    }
  };
  ranks.each([&](int rank) {
    if (rank != vote.last) one(rank, since);
  });
  one(vote.last, now);
}

void Negotiation::wait(int rank, Waiting waiting) {
  if (waiting.id != 0 && cache_.find(waiting.id) == nullptr) {
    waiting.asked = true;
    questions_.push_back({rank, waiting.id});
  }
  std::deque<Waiting>& all = waiting_[static_cast<size_t>(rank)];
  ranks_waiting_ += all.empty();
  all.push_back(std::move(waiting));
}

void Negotiation::resent(int rank, uint32_t id, Request request, Time now) {
  auto& waiting = waiting_[static_cast<size_t>(rank)];
  auto meant = std::find_if(waiting.begin(), waiting.end(), [id](const Waiting& w) { return w.id == id; });
  if (meant == waiting.end()) return;
  *meant = {0, std::move(request)};
  count_waiting(rank, now);
}

void Negotiation::count_waiting(int rank, Time now) {
  auto& waiting = waiting_[static_cast<size_t>(rank)];
  while (!waiting.empty() && !waiting.front().asked) {
    Waiting& first = waiting.front();
    const AgreementCache::Entry* entry = cache_.find(first.id);
    if (first.id != 0 && entry == nullptr) {  // forgotten while it waited
      first.asked = true;
      questions_.push_back({rank, first.id});
      return;
    }
    if (entry != nullptr) {
      count(rank, *entry, now);
    } else {
      count(rank, std::move(first.request), now);
    }
    waiting.pop_front();
    ranks_waiting_ -= waiting.empty();
  }
}

const Request* Negotiation::remembered(uint32_t id) const {
  const AgreementCache::Entry* entry = cache_.find(id);
  return entry == nullptr ? nullptr : &entry->agreement->common;
}

// ---- counting

Negotiation::Vote& Negotiation::pending(const Request& request, const std::string& key,
                                        const Members& members, Time now) {
  auto [found, fresh] = votes_.try_emplace(key);
  Vote& vote = found->second;
  if (fresh) {
    vote.number = next_number_++;
    vote.process_set = request.process_set;
    vote.ranks = members.ranks;
    vote.name = request.name;
    vote.kind = request.kind;
    vote.since = now;
    vote.voted = RankSet(static_cast<int>(joined_.size()));
  }
  return vote;
}

Negotiation::Vote* Negotiation::vote_for(int rank, const Request& request, const std::string& key, Time now) {
  auto set = sets_.find(request.process_set);
  if (set == sets_.end() || !set->second.set.has(rank)) {
    fail({rank}, request.process_set, request.name,
         Status::invalid("Process set " + std::to_string(request.process_set) + " of '" + request.name +
                         "' does not exist any more."));
    return nullptr;
  }
  Vote& vote = pending(request, key, set->second, now);
  if (vote.voted.has(rank))
    return nullptr;  // a rank has a name pending only once: this is the same operation
  vote.voted.add(rank);
  vote.in_person |= has(request.kind, kOfAllRanks);
  vote.count++;
  vote.last_rank = rank;
  vote.since = std::min(vote.since, now);
  vote.latest = std::max(vote.latest, now);
  return &vote;
}

void Negotiation::count(int rank, Request request, Time now) {
  const std::string key = operation_key(request.process_set, request.name);
  Vote* vote = vote_for(rank, request, key, now);
  if (vote == nullptr) return;
  const std::vector<int>& ranks = *vote->ranks;
  if (vote->full.empty()) vote->full.resize(ranks.size());
  const auto member = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const int kind = request.kind;
  vote->full[static_cast<size_t>(member)] = std::make_unique<Request>(std::move(request));
  if (kind == HVD_JOIN) join(rank);
  finish_if_complete(key);
}

void Negotiation::count(int rank, const AgreementCache::Entry& entry, Time now) {
  const std::string key = entry.key;  // finishing may replace the entry
  Vote* vote = vote_for(rank, entry.agreement->common, key, now);
  if (vote == nullptr) return;
  cache_.use(entry);
  if (!vote->cached) vote->cached = entry.agreement;
  finish_if_complete(key);
}

// A few words for all of them, where each by itself would take 0.2 us. False if they have to be looked at one
// by one: then nothing has been counted.
bool Negotiation::count_together(const RankSet& ranks, const wire::Vote& votes, Time since, Time now) {
  const AgreementCache::Entry* entry = cache_.find(votes.id);
  if (entry == nullptr || ranks_waiting_ > 0) return false;
  const Request& request = entry->agreement->common;
  auto set = sets_.find(request.process_set);
  if (set == sets_.end() || !set->second.set.covers(ranks)) return false;
  const std::string key = entry->key;  // finishing may replace the entry
  Vote& vote = pending(request, key, set->second, since);
  if (vote.voted.meets(ranks)) return false;
  vote.voted |= ranks;
  vote.count += ranks.count();
  vote.last_rank = votes.last;
  vote.since = std::min(vote.since, since);
  vote.latest = std::max(vote.latest, now);
  cache_.use(*entry);
  if (!vote.cached) vote.cached = entry->agreement;
  finish_if_complete(key);
  return true;
}

bool Negotiation::complete(const Vote& vote) const {
  if (vote.count == static_cast<int>(vote.ranks->size())) return true;
  if (joined_count_ == 0 || vote.in_person) return false;
  return std::all_of(vote.ranks->begin(), vote.ranks->end(),
                     [&](int rank) { return vote.voted.has(rank) || joined_[static_cast<size_t>(rank)]; });
}

// What only this rank was missing for can run now. It must before the join is finished: then nobody stands in
// any more.
void Negotiation::join(int rank) {
  joined_count_ += !joined_[static_cast<size_t>(rank)];
  joined_[static_cast<size_t>(rank)] = 1;
  std::vector<std::string> keys;
  for (const Vote* vote : by_arrival())
    if (!vote->in_person && complete(*vote)) keys.push_back(operation_key(vote->process_set, vote->name));
  for (const std::string& key : keys) finish_if_complete(key);
}

// The joins among these votes have failed, because another operation has the same name.
void Negotiation::leave_join(const Vote& vote) {
  for (size_t i = 0; i < vote.full.size(); ++i) {
    if (!vote.full[i] || vote.full[i]->kind != HVD_JOIN) continue;
    joined_[static_cast<size_t>((*vote.ranks)[i])] = 0;
    joined_count_--;
  }
}

void Negotiation::finish_if_complete(const std::string& key) {
  auto found = votes_.find(key);
  if (found == votes_.end() || !complete(found->second)) return;
  Vote vote = std::move(found->second);
  votes_.erase(found);
  finish(vote);
}

void Negotiation::finish(Vote& vote) {
  const std::vector<int>& ranks = *vote.ranks;
  const bool everyone = vote.count == static_cast<int>(ranks.size());
  if (vote.count > 1 && !has(vote.kind, kMayWait)) {
    Late& late = late_[static_cast<size_t>(vote.last_rank)];
    late.times++;
    late.cost += vote.latest - std::max(vote.since, std::min(late.until, vote.latest));
    late.until = vote.latest;
  }
  if (vote.full.empty() && (everyone || has(vote.kind, kIncludesJoined))) {
    return ready(vote, vote.cached);
  }
  // Some rank sent the whole request: check all against each other.
  std::vector<Request> rebuilt;
  rebuilt.reserve(ranks.size());
  std::vector<Submission> submissions;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!vote.voted.has(ranks[i])) continue;
    const Request* request = vote.full.empty() ? nullptr : vote.full[i].get();
    if (request == nullptr) {
      rebuilt.push_back(member_request(*vote.cached, static_cast<int>(i)));
      request = &rebuilt.back();
    }
    submissions.push_back({ranks[i], request});
  }
  Status status = check_agreement(submissions, static_cast<int>(ranks.size()), !everyone);
  if (!status.ok()) {
    leave_join(vote);
    return fail(vote, status);
  }
  auto agreement = std::make_shared<Agreement>(make_agreement(submissions));
  if (vote.kind == HVD_JOIN) {
    agreement->result = vote.last_rank;
    std::fill(joined_.begin(), joined_.end(), uint8_t{0});
    joined_count_ = 0;
  }
  if (vote.kind == HVD_ADD_PROCESS_SET || vote.kind == HVD_REMOVE_PROCESS_SET) {
    status = change_process_sets(agreement->common, &agreement->result);
    if (!status.ok()) return fail(vote, status);
  }
  if (everyone && worth_remembering(agreement->common))
    cache_.remember(agreement, operation_key(vote.process_set, vote.name));
  ready(vote, std::move(agreement));
}

Status Negotiation::change_process_sets(const Request& common, int64_t* result) {
  if (common.kind == HVD_REMOVE_PROCESS_SET) {
    *result = common.root_rank;  // which set to remove; the request itself is one of the global set
    return remove_process_set(common.root_rank);
  }
  std::vector<int> ranks(common.numbers.begin(), common.numbers.end());
  for (const auto& set : sets_)
    if (*set.second.ranks == ranks)
      return Status::invalid("A process set with the same ranks already exists (id " +
                             std::to_string(set.first) + ").");
  int id = 1;
  while (sets_.count(id)) ++id;
  if (id >= kMaxCommunicators)
    return Status::invalid("There can be at most " + std::to_string(kMaxCommunicators - 1) +
                           " process sets at a time; remove some first.");
  sets_[id] = members(std::move(ranks));
  *result = id;
  return {};
}

Status Negotiation::remove_process_set(int32_t id) {
  if (id == 0 || sets_.erase(id) == 0)
    return Status::invalid("There is no process set " + std::to_string(id) + " to remove.");
  for (const Vote* vote : by_arrival()) {
    if (vote->process_set != id) continue;
    fail(*vote, Status::invalid("Process set " + std::to_string(id) + " was removed while '" + vote->name +
                                "' was pending."));
    votes_.erase(operation_key(id, vote->name));
  }
  cache_.forget_process_set(id);
  return {};
}

// ---- what is ready

void Negotiation::fail(const Vote& vote, const Status& reason) {
  std::vector<int> voters;
  vote.voted.each([&](int rank) { voters.push_back(rank); });
  fail(std::move(voters), vote.process_set, vote.name, reason, vote.in_person);
}

void Negotiation::fail(std::vector<int> ranks, int32_t process_set, const std::string& name,
                       const Status& reason, bool in_order) {
  Ready failure;
  failure.ranks = std::make_shared<const std::vector<int>>(std::move(ranks));
  failure.operation.code = reason.code();
  failure.operation.text = reason.text();
  failure.operation.process_set = process_set;
  failure.operation.name = name;
  failure.in_order = in_order;
  ready_.push_back(std::move(failure));
}

void Negotiation::ready(const Vote& vote, AgreementPtr agreement) {
  const Request& common = agreement->common;
  Ready entry;
  entry.ranks = vote.ranks;
  entry.since = vote.latest;
  entry.in_order = has(common.kind, kOfAllRanks);
  entry.bytes = agreement_bytes(*agreement);
  bool fusable = !common.tensors.empty() && knobs_.fusion_threshold > 0 &&
                 !(knobs_.disable_group_fusion && common.tensors.size() > 1);
  if (fusable) entry.fuse_key = fuse_key(common);
  entry.agreement = std::move(agreement);
  ready_.push_back(std::move(entry));
}

// Members of a set get its operations at the same place of the one order, so some may overtake others that
// are held back. Not so what changes the world: a removed process set must not be gone before its last
// operations have run, and a rank must not come back from join while it still stands in for some.
std::vector<Negotiation::Release> Negotiation::release(const std::vector<uint8_t>& busy) {
  std::vector<Release> releases;
  std::deque<Ready> held;
  std::unordered_map<std::string, std::pair<size_t, int64_t>> open;  // fuse key -> (release, bytes so far)
  for (Ready& entry : ready_) {
    const bool hold = (entry.agreement && busy[static_cast<size_t>(entry.ranks->front())]) ||
                      (entry.in_order && !held.empty());
    if (hold) {
      held.push_back(std::move(entry));
      continue;
    }
    if (!entry.fuse_key.empty()) {
      auto found = open.find(entry.fuse_key);
      if (found != open.end() && entry.bytes <= fusion_threshold_ - found->second.second) {
        releases[found->second.first].operation.items.push_back(cache_.item_for(*entry.agreement));
        releases[found->second.first].bytes += entry.bytes;
        found->second.second += entry.bytes;
        continue;
      }
      open[entry.fuse_key] = {releases.size(), entry.bytes};
    }
    if (entry.agreement) {
      entry.operation.process_set = entry.agreement->common.process_set;
      entry.operation.items.push_back(cache_.item_for(*entry.agreement));
    }
    releases.push_back({std::move(entry.ranks), std::move(entry.operation), entry.bytes, entry.since});
  }
  ready_ = std::move(held);
  return releases;
}

// ---- what waits for too long

std::vector<const Negotiation::Vote*> Negotiation::by_arrival() const {
  std::vector<const Vote*> votes;
  for (const auto& entry : votes_) votes.push_back(&entry.second);
  std::sort(votes.begin(), votes.end(), [](const Vote* a, const Vote* b) { return a->number < b->number; });
  return votes;
}

Negotiation::Stalled Negotiation::describe(const Vote& vote, Time now) const {
  Stalled stalled{vote.number, vote.name, std::chrono::duration<double>(now - vote.since).count(), {}, {}};
  for (int rank : *vote.ranks) {
    if (vote.voted.has(rank)) {
      stalled.ready.push_back(rank);
    } else if (vote.in_person || !joined_[static_cast<size_t>(rank)]) {
      stalled.missing.push_back(rank);
    }
  }
  return stalled;
}

std::vector<Negotiation::Stalled> Negotiation::stalled(Time now, double limit) const {
  std::vector<Stalled> result;
  for (const Vote* vote : by_arrival()) {
    if (has(vote->kind, kMayWait)) continue;
    Stalled stalled = describe(*vote, now);
    if (stalled.seconds >= limit) result.push_back(std::move(stalled));
  }
  return result;
}

Negotiation::Time Negotiation::waits_since(Time now) const {
  for (const auto& entry : votes_)
    if (!has(entry.second.kind, kMayWait)) now = std::min(now, entry.second.since);
  return now;
}

}  // namespace hvd
