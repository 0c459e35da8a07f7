// How far rank 0's clock is ahead of a rank's, from what heartbeats between neighbours in the tree tell.
// Pure.
#pragma once

#include <cstdint>

#include "wire/messages.h"

namespace hvd {

// Of the clock of a neighbour whose message has arrived `now`: the four times of two messages that crossed,
// and what the clocks differ by if both took equally long.
inline wire::ClockOffset neighbour_offset(const wire::Clock& theirs, int64_t now) {
  if (theirs.arrived == 0) return {};
  const int64_t there = theirs.arrived - theirs.last, back = theirs.sent - now;
  const int64_t round_trip = (now - theirs.last) - (theirs.sent - theirs.arrived);
  if (round_trip < 0) return {};
  return {(there + back) / 2, static_cast<uint64_t>(round_trip), true};
}

// Of the clock that the neighbour knows to be so far ahead of its own. The errors add up, as the round trips.
inline wire::ClockOffset beyond(const wire::ClockOffset& neighbour, const wire::ClockOffset& its) {
  if (!neighbour.known || !its.known) return {};
  return {neighbour.offset + its.offset, neighbour.round_trip + its.round_trip, true};
}

}  // namespace hvd
