// Memory for tensors of which every rank of the host reaches everybody's, so that a collective works on them
// where they are instead of copying them in and out.
//
// Each rank has a part, in which only it allocates. All know each other's by place: the distance from the
// start of the first part, which means the same in every process, whatever was allocated there when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>

#include "base/not_copied.h"
#include "comm/communicator.h"

namespace hvd {

class SharedHeap : NotCopied, public std::enable_shared_from_this<SharedHeap> {
 public:
  static constexpr uint64_t kNowhere = ~uint64_t{0};
  static constexpr size_t kPage = 64 << 10;  // the largest that Linux has
  // How much is worth reserving for so many ranks: only what is touched takes memory.
  static size_t useful_bytes(int ranks);

  // `start` is that of `ranks` parts of `bytes` each, whole pages, within `mapping`, which is of all of
  // `file`; null: this rank could not map them, so it has nothing there and reaches nobody. A descriptor of
  // the file is kept, another one than the caller's.
  SharedHeap(std::shared_ptr<void> mapping, int file, void* start, size_t bytes, int ranks, int rank);
  ~SharedHeap();
  // In the child: what the parent has is no longer to be freed, and another thread may have held the lock.
  static void forget_all();

  // Whole pages; null if there is no room. They live until free(), which may come after everything else
  // has let go of the heap.
  void* allocate(size_t bytes);
  // Of any heap of this process; false if it is in none. Not in a forked child, whose parent has it, too.
  static bool free(void* memory);

  // Where these bytes of this rank's are, or kNowhere if not in what it has allocated here.
  uint64_t place_of(const void* memory, size_t bytes) const;
  // The bytes at somebody's place; null if there is no such place.
  std::byte* at(uint64_t place, size_t bytes) const;

  // From here on nothing of this rank is found here. What others still write to these pieces, because they
  // don't know yet that an operation has failed, goes nowhere: their pages become private, with the contents
  // that they have. Only the first call does anything: nothing is here after it.
  void withdraw(std::initializer_list<const Pieces*> pieces);

 private:
  void make_private(size_t begin, size_t end);
  void give_back(size_t offset);
  bool own(const void* memory) const {
    const auto* byte = static_cast<const std::byte*>(memory);
    return own_ != nullptr && byte >= own_ && byte < own_ + part_bytes_;
  }
  size_t offset_of(const void* memory) const {
    return static_cast<size_t>(static_cast<const std::byte*>(memory) - own_);
  }

  const std::shared_ptr<void> mapping_;
  const int file_;
  std::byte* const start_;
  const size_t part_bytes_;
  const size_t all_bytes_;
  std::byte* const own_;
  mutable std::mutex mutex_;
  bool withdrawn_ = false;
  std::map<size_t, size_t> used_, unused_;  // in this rank's part: bytes by offset
};

}  // namespace hvd
