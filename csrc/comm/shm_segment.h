// What lies where in the memory that all ranks share.
//
//   flags    kMaxCommunicators x size RankFlags
//   staging  one area a rank, written by that rank only and shared by all communicators it is in:
//              two one-shot buffers, then a ring of kSlots slots of P sub-slots (P: members of the
//              communicator)
//
// Everything is touched only when used, so that the segment may be large and sparse.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "base/processors.h"
#include "comm/communicator.h"
#include "comm/shm_flag.h"

namespace hvd {

struct RankFlags {
  Flag once[2];  // the one-shot exchange of that (odd or even) number is there; small ones are in the payload
  Flag once_done;  // all one-shot buffers up to that number were read
  // Pipeline steps:
  Flag published;  // this rank's input is in its slot
  Flag reduced;    // the others' inputs were read, this rank's result is in place
  Flag fetched;    // the others' results were read
  // Where this rank ran when it came. Only a hint.
  std::atomic<int> processor;
};

constexpr size_t kOnceBytes = 32 << 10;
constexpr uint32_t kSlots = 4;
constexpr size_t kRingBytes = 32 << 20;  // at most, per rank

// What one member puts into a slot for another, a multiple of every element's size. Small enough for the ring
// to stay in the caches, which ranks may have to share. All ranks on a host find the same. Shrinks with many
// members so that the ring keeps its size.
inline size_t sub_slot_bytes(int ranks_on_host, int members) {
  return std::min<size_t>(ranks_on_host > online_processors() ? 24 << 10 : 48 << 10,
                          kRingBytes / kSlots / members / 64 * 64);
}

class ShmSegment {
 public:
  ShmSegment(void* memory, int size)
      : flags_(static_cast<RankFlags*>(memory)),
        staging_(static_cast<std::byte*>(memory) + flag_bytes(size)),
        staging_bytes_(staging_bytes(size)),
        size_(size) {}

  static size_t bytes(int size) { return flag_bytes(size) + static_cast<size_t>(size) * staging_bytes(size); }

  RankFlags& flags(int slot, int rank) const { return flags_[static_cast<size_t>(slot) * size_ + rank]; }
  std::byte* once(int rank, uint32_t number) const { return staging(rank) + (number & 1) * kOnceBytes; }
  std::byte* ring(int rank) const { return staging(rank) + 2 * kOnceBytes; }
  int ranks() const { return size_; }

 private:
  static size_t flag_bytes(int size) {
    return (kMaxCommunicators * static_cast<size_t>(size) * sizeof(RankFlags) + 4095) / 4096 * 4096;
  }
  static size_t staging_bytes(int size) {
    return 2 * kOnceBytes + kSlots * static_cast<size_t>(size) * sub_slot_bytes(size, size);
  }
  std::byte* staging(int rank) const { return staging_ + static_cast<size_t>(rank) * staging_bytes_; }

  RankFlags* flags_;
  std::byte* staging_;
  size_t staging_bytes_;
  int size_;
};

}  // namespace hvd
