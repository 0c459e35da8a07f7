#include "simulator/control.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "comm/tuning.h"
#include "engine/knobs.h"

namespace hvd::simulator {
namespace {

using wire::MessageType;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "simulate: %s\n", what);
  std::exit(1);
}

const uint8_t* content(const std::vector<uint8_t>& frame) { return frame.data() + sizeof(uint32_t); }
size_t length(const std::vector<uint8_t>& frame) { return frame.size() - sizeof(uint32_t); }

}  // namespace

Control::Control(Machine* machine, int local, const std::vector<int>& parents)
    : machine_(*machine),
      size_(machine->size()),
      local_(local),
      parents_(parents),
      branches_(parents.size()),
      branch_(parents.size()),
      combining_(parents.size()),
      negotiation_(size_, default_knobs()),
      runners_(parents.size()),
      ready_(static_cast<size_t>(size_ / local)),
      exchange_(parents.size()) {
  std::vector<uint8_t> hub(parents.size(), 0);
  hub[0] = 1;
  for (size_t rank = 1; rank < parents.size(); ++rank) hub[static_cast<size_t>(parents[rank])] = 1;
  for (int rank = 0; rank < size_; ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (rank % local == 0 && size_ > local)
      exchange_[index] = rounds_of(rank / local, size_ / local, local, sizeof(float));
    if (!hub[index]) continue;
    branches_[index] = branches_of(rank, parents);
    for (size_t i = 1; i < branches_[index].size(); ++i)
      branch_[static_cast<size_t>(branches_[index][i].rank)] = i;
    if (rank > 0) combining_[index] = std::make_unique<Combining>(size_, branches_[index]);
  }
  machine_.after = [this](int rank) { act(rank); };
}

double Control::run(const std::vector<wire::Request>& requests) {
  const double begin = machine_.now();
  std::vector<Frame> frames;
  for (const wire::Request& request : requests) {
    auto known = known_.find(request.name);
    frames.push_back(known == known_.end() ? wire::encode_request(request)
                                           : wire::encode_id(MessageType::kCached, known->second));
  }
  for (int rank = 0; rank < size_; ++rank) {
    machine_.at(begin, rank, [this, rank, &frames] {
      for (const Frame& frame : frames) announce(rank, frame);
    });
  }
  return finish() - begin;
}

double Control::run_alltoall(wire::Request request, const std::vector<std::vector<int32_t>>& splits) {
  const double begin = machine_.now();
  for (int rank = 0; rank < size_; ++rank) {
    machine_.at(begin, rank, [this, rank, &request, &splits] {
      request.numbers = splits[static_cast<size_t>(rank)];
      announce(rank, wire::encode_request(request));
    });
  }
  return finish() - begin;
}

double Control::finish() {
  machine_.run();
  bool idle = !negotiation_.has_votes() && !negotiation_.has_ready();
  for (const Runner& each : runners_) idle &= !each.running && each.todo.empty();
  require(idle, "the simulated ranks wait for each other: this is an error of the simulator");
  return machine_.now();
}

Negotiation::Time Control::time() const {
  return Negotiation::Time(std::chrono::nanoseconds(static_cast<int64_t>(machine_.now() * 1e9)));
}

// ---- up

void Control::announce(int rank, Frame frame) {
  machine_.spend(machine_.costs().submit);
  if (is_hub(rank)) return arrive(rank, 0, frame);
  const int above = parents_[static_cast<size_t>(rank)];
  const size_t bytes = frame.size();
  machine_.send(rank, above, bytes, true, [this, rank, above, frame = std::move(frame)] {
    arrive(above, branch_[static_cast<size_t>(rank)], frame);
  });
}

void Control::arrive(int at, size_t branch, const Frame& frame) {
  const uint8_t* data = content(frame);
  size_t size = length(frame);
  RankSet ranks;
  wire::Message message;
  require(open_frame(branches_[static_cast<size_t>(at)][branch], size_, &data, &size, &ranks, &message),
          "a leader received a malformed frame");
  spend_on_votes(at, ranks, message);
  if (at == 0) return count(ranks, message);
  require(combining_[static_cast<size_t>(at)]->from_branch(branch, content(frame), length(frame), time()),
          "a leader can do nothing with a frame");
}

// Those that come together for a known operation are some words, everywhere. Whole requests are compared by
// leaders as they are, and looked at by rank 0 one by one.
void Control::spend_on_votes(int at, const RankSet& ranks, const wire::Message& message) {
  const Costs& costs = machine_.costs();
  if (message.type != MessageType::kVotes) return machine_.spend(costs.vote);
  for (const wire::Vote& vote : message.votes)
    machine_.spend(vote.request && at == 0 ? costs.vote * ranks.count()
                                           : costs.votes + costs.votes_rank * size_);
}

// As Coordinator::received() does.
void Control::count(const RankSet& ranks, const wire::Message& message) {
  if (message.type == MessageType::kVotes) {
    for (const wire::Vote& vote : message.votes) negotiation_.votes(ranks, vote, time());
    return;
  }
  ranks.each([&](int rank) {
    if (message.type == MessageType::kCached) {
      negotiation_.cached(rank, message.id, time());
    } else {
      negotiation_.request(rank, message.request, time());
    }
  });
}

// A rank has taken all that had arrived.
void Control::act(int rank) {
  if (rank == 0) return release();
  Combining* combining = combining_[static_cast<size_t>(rank)].get();
  if (combining == nullptr) return;
  for (Frame& frame : combining->take_up()) {
    const int above = parents_[static_cast<size_t>(rank)];
    const size_t bytes = frame.size();
    machine_.send(rank, above, bytes, true, [this, rank, above, frame = std::move(frame)] {
      arrive(above, branch_[static_cast<size_t>(rank)], frame);
    });
  }
}

// ---- down

// As Coordinator::release() does.
void Control::release() {
  while (negotiation_.has_ready()) {
    const std::vector<uint8_t> busy(static_cast<size_t>(size_),
                                    sent_to_rank_0_ - executed_ >= Tuning().ahead ? 1 : 0);
    const std::vector<Negotiation::Release> releases = negotiation_.release(busy);
    if (releases.empty()) return;
    for (const Negotiation::Release& release : releases) {
      require(release.operation.code == HVD_OK, release.operation.text.c_str());
      ++sent_to_rank_0_;
      ++operations_;
      for (const wire::Item& item : release.operation.items)
        if (item.fresh && item.fresh->id != 0) known_[item.fresh->common.name] = item.fresh->id;
      address_release(branches_[0], size_, *release.ranks, release.operation,
                      [this](size_t branch, const Frame& frame) { send_down(0, branch, frame); });
    }
  }
}

void Control::send_down(int from, size_t branch, const Frame& frame) {
  if (branch == 0) return learn(from, frame);
  const int to = branches_[static_cast<size_t>(from)][branch].rank;
  machine_.send(from, to, frame.size(), true, [this, to, frame] { from_above(to, frame); });
}

void Control::from_above(int rank, const Frame& frame) {
  Combining* combining = combining_[static_cast<size_t>(rank)].get();
  if (combining == nullptr) return learn(rank, frame);
  require(combining->from_above(content(frame), length(frame)), "a leader received a malformed release");
  for (const Combining::Down& down : combining->take_down()) send_down(rank, down.branch, down.frame);
}

// The engine of a rank is told to run something.
void Control::learn(int rank, const Frame& frame) {
  if (wire::type_of(content(frame), length(frame)) != MessageType::kOperation) return;
  wire::Message message;
  require(wire::decode(content(frame), length(frame), &message), "a rank received a malformed release");
  const auto& items = message.operation.items;
  runner(rank).todo.push_back(items.empty() || !items[0].fresh || items[0].fresh->columns.empty());
  run_next(rank);
}

// ---- the data of small operations: within the host, between the leaders, and back

void Control::run_next(int rank) {
  Runner& own = runner(rank);
  if (own.running || own.todo.empty()) return;
  own.running = true;
  if (!own.todo.front()) return ended(rank);
  const int host = machine_.host(rank);
  if (++ready_[static_cast<size_t>(host)] < local_) return;
  ready_[static_cast<size_t>(host)] = 0;
  for (int other = host * local_; other < (host + 1) * local_; ++other)
    if (other != rank)
      machine_.send(rank, other, sizeof(float), false, [this, other] { host_is_ready(other); });
  host_is_ready(rank);
}

void Control::host_is_ready(int rank) {
  if (size_ == local_) return ended(rank);
  if (rank % local_ != 0) return;  // waits for the result
  runner(rank).round = 0;
  begin_round(rank);
}

void Control::begin_round(int rank) {
  Runner& own = runner(rank);
  const std::vector<Round>& rounds = exchange_[static_cast<size_t>(rank)];
  for (; own.round < rounds.size(); ++own.round) {
    const Round& round = rounds[own.round];
    for (const Round::Sent& sent : round.sent) {
      const int to = sent.to;
      machine_.send(rank, to, sent.bytes, false, [this, rank, to] {
        Runner& peer = runner(to);
        const bool awaited = peer.balance[rank]++ < 0;
        if (!awaited || --peer.missing > 0) return;
        ++peer.round;
        begin_round(to);
      });
    }
    for (int from : round.from) own.missing += own.balance[from]-- <= 0;
    if (own.missing > 0) return;
  }
  rounds_over(rank);
}

void Control::rounds_over(int rank) {
  for (int other = rank + 1; other < rank + local_; ++other)
    machine_.send(rank, other, sizeof(float), false, [this, other] { ended(other); });
  ended(rank);
}

void Control::ended(int rank) {
  Runner& own = runner(rank);
  own.running = false;
  own.todo.pop_front();
  executed_ += rank == 0;
  run_next(rank);
}

}  // namespace hvd::simulator
