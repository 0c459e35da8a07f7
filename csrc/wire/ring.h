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

// Of one rank with rank 0.
struct RingPair {
  Ring to_rank, from_rank;
  alignas(64) std::atomic<uint32_t> sleepers;  // threads of the rank that wait for bells
};

// Those of all ranks on rank 0's host.
struct ControlRings {
  static size_t bytes(int ranks) {
    return sizeof(ControlRings) + static_cast<size_t>(ranks) * sizeof(RingPair);
  }
  RingPair& pair(int index) { return reinterpret_cast<RingPair*>(this + 1)[index]; }

  alignas(64) std::atomic<uint32_t> sleepers;  // the coordinator's, on any of the connections
};

// For `ranks` that are in this process; zero.
std::shared_ptr<ControlRings> make_control_rings(int ranks);

// What one end needs.
struct RingEnd {
  static RingEnd of_coordinator(ControlRings& rings, int index) {
    RingPair& pair = rings.pair(index);
    return {&pair.to_rank, &pair.from_rank, &pair.sleepers, &rings.sleepers};
  }
  static RingEnd of_rank(ControlRings& rings, int index) {
    RingPair& pair = rings.pair(index);
    return {&pair.from_rank, &pair.to_rank, &rings.sleepers, &pair.sleepers};
  }
  explicit operator bool() const { return out != nullptr; }

  Ring *out = nullptr, *in = nullptr;
  std::atomic<uint32_t>*others = nullptr, *mine = nullptr;  // sleepers
};

}  // namespace hvd::wire
