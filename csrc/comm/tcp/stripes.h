// Which bytes go over which of the connections (streams) between two ranks.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd {

// Streams take turns with stripes of so many bytes, the first one begins: shorter messages have one stream,
// and wait for no other.
constexpr size_t kStripe = 64 << 10;

struct Stripe {
  size_t begin, end;
  size_t bytes() const { return end - begin; }
};

// What is the next of a stream among the bytes [begin, end) of those that go one way in a collective; empty,
// and at `end`, if nothing is. Both ends count the same bytes, however each asks for them.
inline Stripe next_stripe(size_t begin, size_t end, size_t stream, size_t streams) {
  if (streams == 1) return {begin, end};
  const size_t round = streams * kStripe;
  size_t first = begin / round * round + stream * kStripe;
  if (first + kStripe <= begin) first += round;
  return {std::min(std::max(first, begin), end), std::min(first + kStripe, end)};
}

}  // namespace hvd
