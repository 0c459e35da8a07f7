#include "comm/mpi/exchange.h"

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

void wait(int looks) {
  if (looks < kLooks) return;
  timespec pause = {0, looks < kLooks + kNaps ? kNapNanoseconds : kSleepNanoseconds};
  nanosleep(&pause, nullptr);
}

}  // namespace

MpiExchange::MpiExchange(MpiCalls& calls, std::vector<MpiMessages>& messages, const std::vector<int>& members,
                         int rank, const AbortSignal& abort)
    : calls_(calls), messages_(messages), abort_(abort) {
  const auto size = static_cast<int>(members.size());
  // Everybody starts with another peer, so that no one is flooded.
  for (int i = 1; i < size; ++i) {
    int member = (rank + i) % size;
    connections_.push_back({member, members[static_cast<size_t>(member)], {}, {}});
  }
}

Status MpiExchange::run(Plan& plan) {
  for (Connection& connection : connections_) connection.in = connection.out = Direction();
  for (int looks = 0;; ++looks) {
    bool moved = false, ended = true;
    for (Connection& connection : connections_) {
      moved |= send(plan, connection);
      moved |= receive(plan, connection);
      if (!failure_.ok()) return failure_;
      ended &= connection.in.ended && connection.out.ended;
    }
    if (ended) return {};
    if (abort_.raised()) return abort_.reason();
    if (moved) looks = 0;
    wait(looks);
  }
}

bool MpiExchange::send(Plan& plan, Connection& connection) {
  Direction& out = connection.out;
  MpiMessage& message = messages_[static_cast<size_t>(connection.world_rank)].out;
  if (out.ended || (message.active && !complete(message, connection.world_rank))) return false;
  while (out.transfer.bytes == 0) {
    Next next = plan.send(connection.member, out.transfer);
    if (next == Next::kLater) return false;
    out.ended = next == Next::kEnd;
    if (out.ended) return true;
  }
  message.bytes = std::min(out.transfer.bytes, MpiMessage::kMessage);
  gather(*out.transfer.place, message.buffer(), message.bytes);
  out.transfer.bytes -= message.bytes;
  calls_.traffic.add_sent(message.bytes);
  message.active =
      check(calls_.send(message.buffer(), message.bytes, connection.world_rank, &message.request),
            connection.world_rank);
  return true;
}

bool MpiExchange::receive(Plan& plan, Connection& connection) {
  Direction& in = connection.in;
  MpiMessage& message = messages_[static_cast<size_t>(connection.world_rank)].in;
  if (in.ended) return false;
  if (message.active) {
    if (!complete(message, connection.world_rank)) return false;
    scatter(message.buffer(), *in.transfer.place, message.bytes);
    in.transfer.bytes -= message.bytes;
    calls_.traffic.add_received(message.bytes);
    if (in.transfer.bytes == 0) plan.received(connection.member);
    return true;
  }
  while (in.transfer.bytes == 0) {
    Next next = plan.receive(connection.member, in.transfer);
    if (next == Next::kLater) return false;
    in.ended = next == Next::kEnd;
    if (in.ended) return true;
    if (in.transfer.bytes == 0) plan.received(connection.member);
  }
  message.bytes = std::min(in.transfer.bytes, MpiMessage::kMessage);
  message.active =
      check(calls_.receive(message.buffer(), message.bytes, connection.world_rank, &message.request),
            connection.world_rank);
  return true;
}

bool MpiExchange::complete(MpiMessage& message, int world_rank) {
  bool done = false;
  // After an error nobody knows whether MPI still has the buffer: the message stays active.
  if (!check(calls_.test(&message.request, &done), world_rank) || !done) return false;
  message.active = false;
  return true;
}

bool MpiExchange::check(int code, int world_rank) {
  if (code == 0) return true;
  if (!failure_.ok()) return false;
  const std::string rank = "rank " + std::to_string(world_rank);
  failure_ = abort_.raised_within(abort_.patience())
                 ? abort_.reason()
                 : Status::unknown("MPI could not exchange data with " + rank + " during a collective (" +
                                   calls_.describe(code) + "); see the output of " + rank)
                       .blame(world_rank);
  return false;
}

}  // namespace hvd
