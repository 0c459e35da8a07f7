#include "comm/mpi_exchange.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <string>

namespace hvd {

namespace {

// MPI moves data only while it is called, so waiting is asking again. The first answers are often only
// microseconds away; after that the core is left to others, which may be the peers.
constexpr int kLooks = 200;
constexpr long kNapNanoseconds = 20'000;
constexpr int kNaps = 500;
constexpr long kSleepNanoseconds = 500'000;
// A peer's death is also reported through the abort signal, with a better text: worth a moment's patience.
constexpr int kGraceMilliseconds = 500;

void wait(int looks) {
  if (looks < kLooks) return;
  timespec pause = {0, looks < kLooks + kNaps ? kNapNanoseconds : kSleepNanoseconds};
  nanosleep(&pause, nullptr);
}

}  // namespace

MpiExchange::MpiExchange(MpiCalls& calls, std::vector<MpiPeer>& peers, const std::vector<int>& members,
                         int rank, const AbortSignal& abort)
    : calls_(calls), peers_(peers), abort_(abort) {
  const auto size = static_cast<int>(members.size());
  // Everybody starts with another peer, so that no one is flooded.
  for (int i = 1; i < size; ++i) {
    int member = (rank + i) % size;
    ways_.push_back({member, members[static_cast<size_t>(member)], {}, {}});
  }
}

Status MpiExchange::run(Plan& plan) {
  for (Way& way : ways_) way.in = way.out = Direction();
  for (int looks = 0;; ++looks) {
    bool moved = false, ended = true;
    for (Way& way : ways_) {
      moved |= send(plan, way);
      moved |= receive(plan, way);
      if (!failure_.ok()) return failure_;
      ended &= way.in.ended && way.out.ended;
    }
    if (ended) return {};
    if (abort_.raised()) return abort_.reason();
    if (moved) looks = 0;
    wait(looks);
  }
}

bool MpiExchange::send(Plan& plan, Way& way) {
  Direction& out = way.out;
  MpiLane& lane = peers_[static_cast<size_t>(way.world_rank)].out;
  if (out.ended || (lane.active && !complete(lane, way.world_rank))) return false;
  while (out.stretch.bytes == 0) {
    Next next = plan.send(way.member, out.stretch);
    if (next == Next::kLater) return false;
    out.ended = next == Next::kEnd;
    if (out.ended) return true;
  }
  lane.bytes = std::min(out.stretch.bytes, MpiLane::kMessage);
  gather(*out.stretch.place, lane.buffer(), lane.bytes);
  out.stretch.bytes -= lane.bytes;
  lane.active = check(calls_.send(lane.buffer(), lane.bytes, way.world_rank, &lane.request), way.world_rank);
  return true;
}

bool MpiExchange::receive(Plan& plan, Way& way) {
  Direction& in = way.in;
  MpiLane& lane = peers_[static_cast<size_t>(way.world_rank)].in;
  if (in.ended) return false;
  if (lane.active) {
    if (!complete(lane, way.world_rank)) return false;
    scatter(lane.buffer(), *in.stretch.place, lane.bytes);
    in.stretch.bytes -= lane.bytes;
    if (in.stretch.bytes == 0) plan.received(way.member);
    return true;
  }
  while (in.stretch.bytes == 0) {
    Next next = plan.receive(way.member, in.stretch);
    if (next == Next::kLater) return false;
    in.ended = next == Next::kEnd;
    if (in.ended) return true;
    if (in.stretch.bytes == 0) plan.received(way.member);
  }
  lane.bytes = std::min(in.stretch.bytes, MpiLane::kMessage);
  lane.active =
      check(calls_.receive(lane.buffer(), lane.bytes, way.world_rank, &lane.request), way.world_rank);
  return true;
}

bool MpiExchange::complete(MpiLane& lane, int world_rank) {
  bool done = false;
  // After an error nobody knows whether MPI still has the buffer: the lane stays active.
  if (!check(calls_.test(&lane.request, &done), world_rank) || !done) return false;
  lane.active = false;
  return true;
}

bool MpiExchange::check(int code, int world_rank) {
  if (code == 0) return true;
  if (!failure_.ok()) return false;
  pollfd signal = {abort_.fd(), POLLIN, 0};
  poll(&signal, 1, kGraceMilliseconds);
  const std::string rank = "rank " + std::to_string(world_rank);
  failure_ = abort_.raised()
                 ? abort_.reason()
                 : Status::unknown("MPI could not exchange data with " + rank + " during a collective (" +
                                   calls_.describe(code) + "); see the output of " + rank);
  return false;
}

}  // namespace hvd
