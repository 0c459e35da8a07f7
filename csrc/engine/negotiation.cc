#include "engine/negotiation.h"

#include <algorithm>

#include "comm/communicator.h"
#include "engine/agreement.h"

namespace hvd {
namespace {

constexpr int32_t kEveryone = -1;  // an audience: all ranks, those that have the name pending will know

using wire::Agreement;
using wire::Descriptor;
using wire::Operation;

// Names made from a counter never come back: remembering them would only push out others.
bool worth_remembering(const Descriptor& descriptor) {
  return descriptor.kind <= HVD_BARRIER && descriptor.name.find(".noname.") == std::string::npos;
}

// Joined ranks stand in for allreduce and barrier; these need everyone's own word.
bool needs_every_vote(int kind) {
  return kind == HVD_JOIN || kind == HVD_ADD_PROCESS_SET || kind == HVD_REMOVE_PROCESS_SET;
}

template <typename T>
void append(std::string* key, T value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Operations with the same key may run as one.
std::string fuse_key(const Descriptor& descriptor) {
  std::string key;
  append(&key, descriptor.kind);
  append(&key, descriptor.process_set);
  append(&key, descriptor.root_rank);
  append(&key, descriptor.op);
  append(&key, descriptor.tensors.front().type);
  append(&key, descriptor.prescale);
  append(&key, descriptor.postscale);
  return key;
}

}  // namespace

std::string operation_key(int32_t process_set, const std::string& name) {
  std::string key;
  key.reserve(sizeof process_set + name.size());
  append(&key, process_set);
  return key.append(name);
}

Negotiation::Negotiation(Options options) : options_(options), joined_(static_cast<size_t>(options.size), 0) {
  std::vector<int>& world = sets_[0];
  for (int rank = 0; rank < options.size; ++rank) world.push_back(rank);
}

const std::vector<int>* Negotiation::members(int process_set) const {
  auto found = sets_.find(process_set);
  return found == sets_.end() ? nullptr : &found->second;
}

Negotiation::Vote* Negotiation::vote_for(int rank, int32_t process_set, const std::string& name, int32_t kind,
                                         const std::string& key, Time now) {
  const std::vector<int>* ranks = members(process_set);
  if (ranks == nullptr) return nullptr;
  auto place = std::lower_bound(ranks->begin(), ranks->end(), rank);
  if (place == ranks->end() || *place != rank) return nullptr;
  auto [found, fresh] = votes_.try_emplace(key);
  Vote& vote = found->second;
  if (fresh) {
    vote.process_set = process_set;
    vote.name = name;
    vote.kind = kind;
    vote.since = now;
    vote.voted.assign(ranks->size(), 0);
  }
  auto index = static_cast<size_t>(place - ranks->begin());
  if (vote.voted[index]) return nullptr;
  vote.voted[index] = 1;
  vote.count++;
  vote.last_rank = rank;
  return &vote;
}

void Negotiation::request(int rank, Descriptor descriptor, Time now) {
  std::string key = operation_key(descriptor.process_set, descriptor.name);
  const int kind = descriptor.kind;
  Vote* vote = vote_for(rank, descriptor.process_set, descriptor.name, kind, key, now);
  if (vote == nullptr) {
    return fail(kEveryone, descriptor.process_set, descriptor.name, HVD_INVALID_ARGUMENT,
                "Process set " + std::to_string(descriptor.process_set) + " of '" + descriptor.name +
                    "' does not exist any more.");
  }
  const std::vector<int>& ranks = *members(descriptor.process_set);
  if (vote->full.empty()) vote->full.resize(ranks.size());
  auto index = static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  vote->full[index] = std::make_unique<Descriptor>(std::move(descriptor));
  if (kind == HVD_JOIN && !joined_[static_cast<size_t>(rank)]) {
    joined_[static_cast<size_t>(rank)] = 1;
    joined_count_++;
    // What only this rank was missing for can run now.
    std::vector<std::string> keys;
    for (const auto& entry : votes_) keys.push_back(entry.first);
    for (const std::string& other : keys) finish_if_complete(other);
    return;
  }
  finish_if_complete(key);
}

const Descriptor* Negotiation::remembered(uint32_t id) const {
  auto found = cache_.find(id);
  return found == cache_.end() ? nullptr : &found->second.agreement->common;
}

void Negotiation::cached(int rank, uint32_t id, Time now) {
  CacheEntry& entry = cache_.at(id);
  const Descriptor& common = entry.agreement->common;
  Vote* vote = vote_for(rank, common.process_set, common.name, common.kind, entry.key, now);
  if (vote == nullptr) return;
  ages_.splice(ages_.end(), ages_, entry.age);
  if (!vote->cached) vote->cached = entry.agreement;
  const std::string key = entry.key;  // finishing may replace the entry
  finish_if_complete(key);
}

bool Negotiation::complete(const Vote& vote) const {
  if (vote.count == static_cast<int>(vote.voted.size())) return true;
  if (joined_count_ == 0 || needs_every_vote(vote.kind)) return false;
  const std::vector<int>& ranks = *members(vote.process_set);
  for (size_t i = 0; i < ranks.size(); ++i)
    if (!vote.voted[i] && !joined_[static_cast<size_t>(ranks[i])]) return false;
  return true;
}

void Negotiation::finish_if_complete(const std::string& key) {
  auto found = votes_.find(key);
  if (found == votes_.end() || !complete(found->second)) return;
  Vote vote = std::move(found->second);
  votes_.erase(found);
  finish(vote);
}

void Negotiation::finish(Vote& vote) {
  const std::vector<int>& ranks = *members(vote.process_set);
  const bool everyone = vote.count == static_cast<int>(ranks.size());
  if (vote.full.empty() && (everyone || vote.kind == HVD_ALLREDUCE || vote.kind == HVD_BARRIER)) {
    return ready(vote.cached);
  }
  // Some rank sent the whole request: check all against each other.
  std::vector<Descriptor> rebuilt;
  rebuilt.reserve(ranks.size());
  std::vector<Submission> submissions;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!vote.voted[i]) continue;
    const Descriptor* descriptor = vote.full.empty() ? nullptr : vote.full[i].get();
    if (descriptor == nullptr) {
      rebuilt.push_back(member_descriptor(*vote.cached, static_cast<int>(i)));
      descriptor = &rebuilt.back();
    }
    submissions.push_back({ranks[i], descriptor});
  }
  Status status = check_agreement(submissions, static_cast<int>(ranks.size()), !everyone);
  if (!status.ok()) return fail(vote.process_set, vote.process_set, vote.name, status.code(), status.text());

  auto agreement = std::make_shared<Agreement>(make_agreement(submissions));
  if (vote.kind == HVD_JOIN) {
    agreement->result = vote.last_rank;
    std::fill(joined_.begin(), joined_.end(), uint8_t{0});
    joined_count_ = 0;
  }
  if (vote.kind == HVD_ADD_PROCESS_SET || vote.kind == HVD_REMOVE_PROCESS_SET) {
    std::string error = apply_process_set_change(agreement->common, &agreement->result);
    if (!error.empty())
      return fail(vote.process_set, vote.process_set, vote.name, HVD_INVALID_ARGUMENT, error);
  }
  if (everyone && worth_remembering(agreement->common))
    remember(agreement, operation_key(vote.process_set, vote.name));
  ready(std::move(agreement));
}

std::string Negotiation::apply_process_set_change(const Descriptor& common, int64_t* result) {
  if (common.kind == HVD_REMOVE_PROCESS_SET) {
    int id = common.root_rank;  // which set to remove; the request itself is one of the global set
    if (id == 0 || sets_.erase(id) == 0)
      return "There is no process set " + std::to_string(id) + " to remove.";
    *result = id;
    for (auto vote = votes_.begin(); vote != votes_.end();) {
      if (vote->second.process_set == id) {
        fail(kEveryone, id, vote->second.name, HVD_INVALID_ARGUMENT,
             "Process set " + std::to_string(id) + " was removed while '" + vote->second.name +
                 "' was pending.");
        vote = votes_.erase(vote);
      } else {
        ++vote;
      }
    }
    std::vector<uint32_t> stale;
    for (const auto& entry : cache_)
      if (entry.second.agreement->common.process_set == id) stale.push_back(entry.first);
    for (uint32_t cached : stale) forget(cached);
    return {};
  }
  std::vector<int> ranks(common.numbers.begin(), common.numbers.end());
  for (const auto& set : sets_)
    if (set.second == ranks)
      return "A process set with the same ranks already exists (id " + std::to_string(set.first) + ").";
  int id = 1;
  while (sets_.count(id)) ++id;
  if (id >= kMaxCommunicators)
    return "There can be at most " + std::to_string(kMaxCommunicators - 1) +
           " process sets at a time; remove some first.";
  sets_[id] = std::move(ranks);
  *result = id;
  return {};
}

void Negotiation::fail(int32_t audience, int32_t process_set, const std::string& name, int code,
                       std::string text) {
  Ready failure;
  failure.audience = audience;
  failure.operation.code = code;
  failure.operation.text = std::move(text);
  failure.operation.process_set = process_set;
  failure.operation.name = name;
  ready_.push_back(std::move(failure));
}

void Negotiation::ready(AgreementPtr agreement) {
  const Descriptor& common = agreement->common;
  Ready entry;
  entry.audience = common.process_set;
  entry.bytes = agreement_bytes(*agreement);
  bool fusable = !common.tensors.empty() && options_.fusion_threshold > 0 &&
                 !(options_.disable_group_fusion && common.tensors.size() > 1);
  if (fusable) entry.fuse_key = fuse_key(common);
  entry.agreement = std::move(agreement);
  ready_.push_back(std::move(entry));
}

// Decided at the last moment: what was pushed out of the cache meanwhile travels whole, unremembered.
wire::Item Negotiation::item_for(const Agreement& agreement) {
  wire::Item item;
  auto found = cache_.find(agreement.id);
  if (found != cache_.end() && found->second.announced) {
    item.cached_id = agreement.id;
    return item;
  }
  item.fresh = agreement;
  if (found == cache_.end()) {
    item.fresh->id = 0;
  } else {
    found->second.announced = true;
  }
  return item;
}

std::vector<Negotiation::Release> Negotiation::release(bool hold_rank_0) {
  std::vector<Release> releases;
  std::deque<Ready> held;
  std::unordered_map<std::string, std::pair<size_t, int64_t>> open;  // fuse key -> (release, bytes so far)
  static const std::vector<int> nobody;
  for (Ready& entry : ready_) {
    const std::vector<int>* ranks = entry.audience == kEveryone ? &sets_[0] : members(entry.audience);
    if (ranks == nullptr) ranks = &nobody;
    if (hold_rank_0 && !ranks->empty() && ranks->front() == 0) {
      held.push_back(std::move(entry));
      continue;
    }
    if (!entry.fuse_key.empty()) {
      auto found = open.find(entry.fuse_key);
      if (found != open.end() && found->second.second + entry.bytes <= options_.fusion_threshold) {
        releases[found->second.first].operation.items.push_back(item_for(*entry.agreement));
        found->second.second += entry.bytes;
        continue;
      }
      open[entry.fuse_key] = {releases.size(), entry.bytes};
    }
    if (entry.agreement) {
      entry.operation.process_set = entry.agreement->common.process_set;
      entry.operation.items.push_back(item_for(*entry.agreement));
    }
    releases.push_back({ranks, std::move(entry.operation)});
  }
  ready_ = std::move(held);
  return releases;
}

void Negotiation::remember(const std::shared_ptr<Agreement>& agreement, const std::string& key) {
  if (options_.cache_capacity <= 0) return;
  if (auto old = cache_ids_.find(key); old != cache_ids_.end()) forget(old->second);
  while (cache_.size() >= static_cast<size_t>(options_.cache_capacity)) forget(ages_.front());
  agreement->id = next_id_++;
  if (next_id_ == 0) next_id_ = 1;
  ages_.push_back(agreement->id);
  cache_[agreement->id] = {agreement, key, std::prev(ages_.end())};
  cache_ids_[key] = agreement->id;
}

void Negotiation::forget(uint32_t id) {
  auto found = cache_.find(id);
  if (found == cache_.end()) return;
  ages_.erase(found->second.age);
  cache_ids_.erase(found->second.key);
  cache_.erase(found);
  evicted_.push_back(id);
}

Negotiation::Stalled Negotiation::describe(const Vote& vote, Time now) const {
  Stalled stalled{vote.name, std::chrono::duration<double>(now - vote.since).count(), {}, {}};
  const std::vector<int>& ranks = *members(vote.process_set);
  for (size_t i = 0; i < ranks.size(); ++i)
    (vote.voted[i] ? stalled.ready : stalled.missing).push_back(ranks[i]);
  return stalled;
}

std::vector<Negotiation::Stalled> Negotiation::stalled(Time now, double limit) const {
  std::vector<Stalled> result;
  for (const auto& entry : votes_) {
    if (entry.second.kind == HVD_JOIN) continue;  // waiting is what it is for
    Stalled stalled = describe(entry.second, now);
    if (stalled.seconds >= limit) result.push_back(std::move(stalled));
  }
  return result;
}

std::vector<Negotiation::Stalled> Negotiation::newly_stalled(Time now, double limit) {
  std::vector<Stalled> result;
  for (auto& entry : votes_) {
    if (entry.second.kind == HVD_JOIN || entry.second.reported) continue;
    Stalled stalled = describe(entry.second, now);
    if (stalled.seconds < limit) continue;
    entry.second.reported = true;
    result.push_back(std::move(stalled));
  }
  return result;
}

}  // namespace hvd
