// A control connection within a host: frames travel through memory that both ends share, and its socket only
// carries bells, a byte each, for an end that sleeps. Two processors then need a fraction of a microsecond
// for what takes system calls at both ends otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hvd::wire {

// One direction. Zero at first; there is one writer and one reader at a time.
struct Ring {
  static constexpr size_t kBytes = 16 << 10;

  alignas(64) std::atomic<uint64_t> written;  // bytes, ever
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> wanting;  // the writer has more than there was room for
  alignas(64) uint8_t bytes[kBytes];

  bool empty() const;
  // How many of them there was room for.
  size_t put(const uint8_t* data, size_t size);
  // How many there were.
  size_t take(uint8_t* data, size_t room);
};

// Of a rank with the one above it.
struct RingPair {
  Ring to_rank, from_rank;
  alignas(64) std::atomic<uint32_t> sleepers;      // threads of the rank that wait for bells from above
  alignas(64) std::atomic<uint32_t> hub_sleepers;  // those that wait for any of the ranks below it
  // A bell is on its way to the rank, or from it, that nobody has heard yet: another one would tell nothing.
  alignas(64) std::atomic<uint32_t> bell_to_rank;
  alignas(64) std::atomic<uint32_t> bell_from_rank;
};

// Those of all ranks of a host.
struct ControlRings {
  static size_t bytes(int ranks) { return static_cast<size_t>(ranks) * sizeof(RingPair); }
  RingPair& pair(int index) { return (&first)[index]; }

  RingPair first;  // others follow
};

// For `ranks` that are in this process; zero.
std::shared_ptr<ControlRings> make_control_rings(int ranks);

// What one end needs.
struct RingEnd {
  // `rank` and `above` are places among the ranks of the host.
  static RingEnd of_hub(ControlRings& rings, int rank, int above) {
    RingPair& pair = rings.pair(rank);
    return {&pair.to_rank,      &pair.from_rank,     &pair.sleepers, &rings.pair(above).hub_sleepers,
            &pair.bell_to_rank, &pair.bell_from_rank};
  }
  static RingEnd of_rank(ControlRings& rings, int rank, int above) {
    RingPair& pair = rings.pair(rank);
    return {&pair.from_rank, &pair.to_rank,        &rings.pair(above).hub_sleepers,
            &pair.sleepers,  &pair.bell_from_rank, &pair.bell_to_rank};
  }
  explicit operator bool() const { return out != nullptr; }

  Ring *out = nullptr, *in = nullptr;
  std::atomic<uint32_t>*others = nullptr, *mine = nullptr;       // sleepers
  std::atomic<uint32_t>*bell_out = nullptr, *bell_in = nullptr;  // on their way
};

}  // namespace hvd::wire
