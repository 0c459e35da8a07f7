#include "comm/shm/segment.h"

#include <stdexcept>
#include <string>

namespace hvd {

namespace {

constexpr uint64_t kVersion = 2;  // of the segment's contents and of the protocol

uint64_t layout_word(int size, size_t sub_slot_bytes) {
  return kVersion << 48 | static_cast<uint64_t>(size) << 32 | sub_slot_bytes;
}

}  // namespace

ShmSegment::ShmSegment(void* memory, int size, size_t sub_slot_bytes)
    : flags_(reinterpret_cast<RankFlags*>(static_cast<std::byte*>(memory) + kPage)),
      staging_(static_cast<std::byte*>(memory) + kPage + flag_bytes(size)),
      size_(size) {
  auto& word = *static_cast<std::atomic<uint64_t>*>(memory);
  uint64_t found = 0;
  if (word.compare_exchange_strong(found, layout_word(size, sub_slot_bytes)))
    found = layout_word(size, sub_slot_bytes);
  if (found >> 32 != layout_word(size, 0) >> 32)
    throw std::runtime_error("the ranks of this host disagree about the layout of their shared memory (" +
                             std::to_string(found >> 32) + " and " +
                             std::to_string(layout_word(size, 0) >> 32) +
                             "): install the same version of Horovod for all of them");
  sub_slot_bytes_ = static_cast<uint32_t>(found);
}

}  // namespace hvd
