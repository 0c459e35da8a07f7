#include "engine/combining.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/negotiation.h"
#include "kinds.h"

namespace hvd {
namespace {

using wire::MessageType;

std::string key_of(const wire::Request& request) { return operation_key(request.process_set, request.name); }

}  // namespace

Combining::Combining(int size, std::vector<Branch> branches)
    : size_(size), branches_(std::move(branches)), here_(size), joined_(size), voters_(size) {
  for (const Branch& branch : branches_) here_ |= branch.ranks;
  sets_.emplace(0, here_);
}

// ---- up

bool Combining::from_branch(size_t branch, const uint8_t* data, size_t size, Time now) {
  RankSet ranks;
  wire::Message message;
  if (!open_frame(branches_[branch], size_, &data, &size, &ranks, &message)) return false;
  switch (message.type) {
    case MessageType::kRequest:
    case MessageType::kCached: {
      wire::Vote one;
      ranks.each([&](int rank) { one.last = rank; });
      one.id = message.id;
      if (message.type == MessageType::kRequest) one.request = std::move(message.request);
      vote(ranks, std::move(one), now);
      return true;
    }
    case MessageType::kVotes:
      for (wire::Vote& each : message.votes) vote(ranks, std::move(each), now);
      return true;
    case MessageType::kResent:
      up(ranks, data, size);
      differ(key_of(message.request), message.request.process_set, ranks, now);
      return true;
    case MessageType::kShutdown:
      send_held_by(ranks, now);
      up(ranks, data, size);
      return true;
    default:
      up(ranks, data, size);
      return true;
  }
}

void Combining::vote(const RankSet& ranks, wire::Vote vote, Time now) {
  if (vote.request && has(vote.request->kind, kOfAllRanks)) {
    send_held_by(ranks, now);
    const wire::Request request = *vote.request;
    up(ranks, std::move(vote));
    return in_person(ranks, request, now);
  }
  auto known = known_.find(vote.id);
  if (!vote.request && known == known_.end()) return up(ranks, std::move(vote));  // forgotten just now
  const int32_t process_set = vote.request ? vote.request->process_set : known->second.process_set;
  auto set = sets_.find(process_set);
  if (set == sets_.end() || !set->second.covers(ranks)) return up(ranks, std::move(vote));
  const std::string key = vote.request ? key_of(*vote.request) : known->second.key;
  Frame request;
  if (vote.request) request = wire::encode_request(*vote.request);

  Pending& operation = pending(key, process_set);
  const bool fresh = operation.held.empty() && operation.sent.empty();
  const bool same = operation.vote.id == vote.id && operation.request == request;
  if (!fresh && !same && !operation.differs) {
    send(&operation, now);
    operation.differs = true;
  }
  if (operation.differs) {
    operation.sent |= ranks;
    return up(ranks, std::move(vote));
  }
  const Time since = now - std::chrono::nanoseconds(vote.waited_ns);
  operation.since = operation.held.empty() ? since : std::min(operation.since, since);
  held_since_ = std::min(held_since_, operation.since);
  operation.held |= ranks;
  const int32_t last = vote.last;
  if (fresh) {
    operation.request = std::move(request);
    operation.vote = std::move(vote);
  }
  operation.vote.last = last;
  if (complete(operation)) send(&operation, now);
}

// A join, or a change of process sets: it has gone up.
void Combining::in_person(const RankSet& ranks, const wire::Request& request, Time now) {
  differ(key_of(request), request.process_set, ranks, now);
  if (request.kind != HVD_JOIN) return;
  joined_ |= ranks;
  ranks.each([&](int rank) { joins_[rank] = key_of(request); });
  send_those([this](const Pending& each) { return complete(each); }, now);
}

Combining::Pending& Combining::pending(const std::string& key, int32_t process_set) {
  auto [found, fresh] = pending_.try_emplace(key);
  if (fresh) {
    found->second.process_set = process_set;
    found->second.held = found->second.sent = RankSet(size_);
  }
  return found->second;
}

bool Combining::complete(const Pending& operation) const {
  auto set = sets_.find(operation.process_set);
  if (set == sets_.end()) return true;
  RankSet there = operation.held;
  there |= operation.sent;
  there |= joined_;
  return there.covers(set->second);
}

void Combining::send(Pending* operation, Time now) {
  if (operation->held.empty()) return;
  wire::Vote vote = operation->vote;
  vote.waited_ns = static_cast<uint64_t>(std::chrono::nanoseconds(now - operation->since).count());
  up(operation->held, std::move(vote));
  operation->sent |= operation->held;
  operation->held.clear();
}

template <typename Which>
void Combining::send_those(Which which, Time now) {
  std::vector<Pending*> found;
  for (auto& entry : pending_)
    if (!entry.second.held.empty() && which(entry.second)) found.push_back(&entry.second);
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->since < b->since; });
  for (Pending* each : found) send(each, now);
}

void Combining::send_held_by(const RankSet& ranks, Time now) {
  send_those([&](const Pending& each) { return each.held.meets(ranks); }, now);
}

// Something else under this name has gone up for these ranks.
void Combining::differ(const std::string& key, int32_t process_set, const RankSet& ranks, Time now) {
  Pending& operation = pending(key, process_set);
  send(&operation, now);
  operation.differs = true;
  operation.sent |= ranks;
}

void Combining::let_go(Time then, Time now) {
  send_those([then](const Pending& each) { return each.since <= then; }, now);
  held_since_ = Time::max();
  for (const auto& entry : pending_)
    if (!entry.second.held.empty()) held_since_ = std::min(held_since_, entry.second.since);
}

void Combining::up(const RankSet& ranks, wire::Vote vote) {
  if (!votes_.empty() && !(voters_ == ranks)) close_votes();
  voters_ = ranks;
  votes_.push_back(std::move(vote));
}

void Combining::up(const RankSet& ranks, const uint8_t* data, size_t size) {
  close_votes();
  up_.push_back(wire::wrap(MessageType::kFrom, ranks.rows(), data, size));
}

void Combining::close_votes() {
  if (votes_.empty()) return;
  const Frame frame = wire::encode_votes(votes_);
  votes_.clear();
  up_.push_back(wire::wrap(MessageType::kFrom, voters_.rows(), frame.data() + sizeof(uint32_t),
                           frame.size() - sizeof(uint32_t)));
}

std::vector<Combining::Frame> Combining::take_up() {
  close_votes();
  return std::exchange(up_, {});
}

// ---- down

bool Combining::from_above(const uint8_t* data, size_t size) {
  RankSet ranks = here_;
  const bool some = wire::type_of(data, size) == MessageType::kTo;
  if (some) {
    std::vector<int32_t> rows;
    ranks.clear();
    if (!wire::unwrap(data, size, &rows, &data, &size) || !ranks.add_rows(rows) || !here_.covers(ranks))
      return false;
  }
  wire::Message message;
  if (!wire::decode(data, size, &message)) return false;
  if (message.type == MessageType::kOperation && !some) {
    auto set = sets_.find(message.operation.process_set);
    if (set == sets_.end()) return false;
    ranks = set->second;
  }
  Frame frame(sizeof(uint32_t) + size);
  const auto length = static_cast<uint32_t>(size);
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + sizeof length, data, size);
  address(branches_, ranks, some, frame, [this](size_t i, const Frame& part) { down_.push_back({i, part}); });
  if (message.type == MessageType::kOperation) learn(message.operation, ranks);
  if (message.type == MessageType::kEvict) known_.erase(message.id);
  return true;
}

void Combining::learn(const wire::Operation& operation, const RankSet& ranks) {
  if (operation.code != HVD_OK) {
    const std::string key = operation_key(operation.process_set, operation.name);
    ranks.each([&](int rank) {
      auto join = joins_.find(rank);
      if (join == joins_.end() || join->second != key) return;
      joins_.erase(join);
      joined_.remove(rank);
    });
    return over(key, ranks);
  }
  for (const wire::Item& item : operation.items) {
    if (!item.fresh) {
      auto known = known_.find(item.cached_id);
      if (known != known_.end()) over(known->second.key, ranks);
      continue;
    }
    const wire::Request& common = item.fresh->common;
    const std::string key = key_of(common);
    if (item.fresh->id != 0) known_[item.fresh->id] = {common.process_set, key};
    over(key, ranks);
    const auto set = static_cast<int32_t>(item.fresh->result);
    if (common.kind == HVD_JOIN) {
      joined_.clear();
      joins_.clear();
    } else if (common.kind == HVD_REMOVE_PROCESS_SET) {
      sets_.erase(set);
    } else if (common.kind == HVD_ADD_PROCESS_SET) {
      RankSet members(size_);
      for (int32_t rank : common.numbers)
        if (rank >= 0 && rank < size_) members.add(rank);
      members &= here_;
      sets_.insert_or_assign(set, std::move(members));
    }
  }
}

// What these ranks have voted for under this name has ended.
void Combining::over(const std::string& key, const RankSet& ranks) {
  auto found = pending_.find(key);
  if (found == pending_.end()) return;
  Pending& operation = found->second;
  operation.sent -= ranks;
  if (!operation.sent.empty()) return;
  operation.differs = false;
  if (operation.held.empty()) pending_.erase(found);
}

}  // namespace hvd
