// What lies where in the memory that all ranks share.
//
//   flags    kMaxCommunicators x size RankFlags
//   staging  one area a rank, written by that rank only and shared by all communicators it is in:
//              two one-shot buffers, then a ring of kSlots slots of P+1 sub-slots (P: members of the
//              communicator)
//
// Everything is touched only when used, so that the segment may be large and sparse.
#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/communicator.h"
#include "comm/shm_flag.h"

namespace hvd {

struct RankFlags {
  Flag once[2];  // the one-shot exchange of that (odd or even) number is there; small ones are in the payload
  Flag once_done;  // all one-shot buffers up to that number were read
  // Pipeline steps:
  Flag published;  // this rank's input is in its slot
  Flag reduced;    // the others' inputs were read, this rank's result is in its slot
  Flag consumed;   // the others' results were read
};

constexpr size_t kOnceBytes = 32 << 10;
constexpr uint32_t kSlots = 8;
constexpr size_t kSubSlotBytes = 256 << 10;
constexpr size_t kRingBytes = 32 << 20;  // at most, per rank

// Shrinks with many members so that the ring keeps its size. A multiple of every element's size.
constexpr size_t sub_slot_bytes(int members) {
  return std::min(kSubSlotBytes, kRingBytes / kSlots / (static_cast<size_t>(members) + 1) / 64 * 64);
}

class ShmSegment {
 public:
  ShmSegment(void* memory, int size) : memory_(static_cast<std::byte*>(memory)), size_(size) {}

  static size_t bytes(int size) { return flag_bytes(size) + static_cast<size_t>(size) * staging_bytes(size); }

  RankFlags& flags(int slot, int rank) const {
    return reinterpret_cast<RankFlags*>(memory_)[static_cast<size_t>(slot) * size_ + rank];
  }
  std::byte* once(int rank, uint32_t number) const { return staging(rank) + (number & 1) * kOnceBytes; }
  std::byte* ring(int rank) const { return staging(rank) + 2 * kOnceBytes; }

 private:
  static size_t flag_bytes(int size) {
    return (kMaxCommunicators * static_cast<size_t>(size) * sizeof(RankFlags) + 4095) / 4096 * 4096;
  }
  static size_t staging_bytes(int size) {
    return 2 * kOnceBytes + std::min(kRingBytes, kSlots * (static_cast<size_t>(size) + 1) * kSubSlotBytes);
  }
  std::byte* staging(int rank) const {
    return memory_ + flag_bytes(size_) + static_cast<size_t>(rank) * staging_bytes(size_);
  }

  std::byte* memory_;
  int size_;
};

}  // namespace hvd
