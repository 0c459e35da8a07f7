// What lies where in the memory that all ranks of a host share.
//
//   layout   a page: what the ranks must agree on
//   flags    kMaxCommunicators x size RankFlags
//   staging  one area a rank, shared by all communicators it is in: two one-shot buffers, then a ring of
//            kSlots slots of P sub-slots (P: members of the communicator)
//
// Everything is touched only when used, so that the segment may be large and sparse.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "comm/shm/flag.h"
#include "comm/shm/protocol.h"
#include "comm/transport.h"

namespace hvd {

struct RankFlags {
  Flag counters[kCounters];  // those of the one-shot exchange carry what is small enough
  // Where this rank ran when it came. Only a hint.
  std::atomic<int> processor;
};

constexpr size_t kOnceBytes = 32 << 10;
constexpr size_t kRingBytes = 32 << 20;     // at most, per rank
constexpr size_t kSubSlotBytes = 48 << 10;  // at most; what one member puts into a slot for another

class ShmSegment {
 public:
  // `memory` is zero, or other ranks have come before: the first one decides about the size of sub-slots (a
  // multiple of 64), as ranks may know of different numbers of processors. Throws std::runtime_error if the
  // others are of another version or number.
  ShmSegment(void* memory, int size, size_t sub_slot_bytes);

  static size_t bytes(int size) {
    return kPage + flag_bytes(size) + static_cast<size_t>(size) * staging_bytes(size);
  }

  RankFlags& flags(int id, int rank) const { return flags_[static_cast<size_t>(id) * size_ + rank]; }
  std::byte* once(int rank, uint32_t number) const { return staging(rank) + (number & 1) * kOnceBytes; }
  std::byte* ring(int rank) const { return staging(rank) + 2 * kOnceBytes; }
  int ranks() const { return size_; }
  // Shrinks with many members so that the ring keeps its size.
  size_t sub_slot_bytes(int members) const { return std::min(sub_slot_bytes_, most_for(members)); }

 private:
  static constexpr size_t kPage = 4096;
  static size_t most_for(int members) {
    return std::min<size_t>(kSubSlotBytes, kRingBytes / kSlots / members / 64 * 64);
  }
  static size_t flag_bytes(int size) {
    return (kMaxCommunicators * static_cast<size_t>(size) * sizeof(RankFlags) + kPage - 1) / kPage * kPage;
  }
  static size_t staging_bytes(int size) {
    return 2 * kOnceBytes + kSlots * static_cast<size_t>(size) * most_for(size);
  }
  std::byte* staging(int rank) const { return staging_ + static_cast<size_t>(rank) * staging_bytes(size_); }

  RankFlags* flags_;
  std::byte* staging_;
  size_t sub_slot_bytes_;
  int size_;
};

}  // namespace hvd
