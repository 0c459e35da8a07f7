#include "engine/relay.h"

#include <algorithm>
#include <utility>

namespace hvd {
namespace {

// So long votes wait for others of their operation. Much longer than ranks that work together are apart, and
// short beside what is reported as a stall.
constexpr std::chrono::milliseconds kHeld{200};

std::vector<int> ranks_at(const std::vector<Branch>& branches, int above) {
  std::vector<int> ranks;
  for (const Branch& branch : branches) ranks.push_back(branch.rank);
  ranks.push_back(above);
  return ranks;
}

}  // namespace

Relay::Relay(int rank, int size, std::vector<Branch> branches, std::vector<wire::Channel> channels, int above,
             AbortSignal* abort)
    : Hub(std::move(channels), abort),
      rank_(rank),
      ranks_(ranks_at(branches, above)),
      combining_(size, std::move(branches)) {
  start("hvd-relay");
}

void Relay::received(size_t channel, const uint8_t* data, size_t size) {
  const bool from_above = channel + 1 == ranks_.size();
  const Clock::time_point now = Clock::now();
  if (!(from_above ? combining_.from_above(data, size) : combining_.from_branch(channel, data, size, now)))
    abort_->raise(Status::unknown("Rank " + std::to_string(rank_) +
                                  " received a malformed control message from rank " +
                                  std::to_string(ranks_[channel]) + ".")
                      .blame(ranks_[channel]));
  if (from_above && wire::type_of(data, size) == wire::MessageType::kClosed) closed_ = true;
  for (const Combining::Down& down : combining_.take_down()) send(down.branch, down.frame);
}

void Relay::act() {
  const Clock::time_point now = Clock::now();
  if (combining_.held_since() <= now - kHeld) combining_.let_go(now - kHeld, now);
  for (const std::vector<uint8_t>& frame : combining_.take_up()) send(ranks_.size() - 1, frame);
  if (lost_ != Clock::time_point::max() && now >= lost_ + kWatchSpeaksFirst)
    abort_->raise(lost_above(ranks_.back()));
}

Hub::Clock::time_point Relay::due() {
  const Clock::time_point held = combining_.held_since(), never = Clock::time_point::max();
  return std::min(held == never ? never : held + kHeld, lost_ == never ? never : lost_ + kWatchSpeaksFirst);
}

void Relay::lost(size_t channel) {
  if (channel + 1 == ranks_.size() && !closed_) lost_ = Clock::now();
}

Status lost_above(int rank) {
  return Status::unknown("The connection to " +
                         (rank == 0 ? "the coordinator (rank 0)"
                                    : "rank " + std::to_string(rank) + ", and by it to the coordinator,") +
                         " was lost.")
      .blame(rank);
}

}  // namespace hvd
