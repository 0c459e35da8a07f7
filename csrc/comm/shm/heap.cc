#include "comm/shm/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace hvd {
namespace {

constexpr size_t kPage = SharedHeap::kPage;
constexpr size_t kMostForOne = size_t{64} << 30, kMostForAll = size_t{256} << 30;

// Which heap a block is of; the block keeps it.
struct Blocks {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<SharedHeap>> heaps;
};
Blocks& blocks() {
  static auto* all = new Blocks;  // never destroyed: arrays may end after everything else
  return *all;
}

size_t whole_pages(size_t bytes) { return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

}  // namespace

size_t SharedHeap::useful_bytes(int ranks) {
  return std::min(kMostForOne, kMostForAll / static_cast<size_t>(ranks) / kPage * kPage) *
         static_cast<size_t>(ranks);
}

SharedHeap::SharedHeap(std::shared_ptr<void> mapping, void* start, size_t bytes, int ranks, int rank)
    : mapping_(std::move(mapping)),
      start_(static_cast<std::byte*>(start)),
      part_bytes_(bytes),
      all_bytes_(bytes * static_cast<size_t>(ranks)),
      own_(start_ == nullptr ? nullptr : start_ + bytes * static_cast<size_t>(rank)) {
  if (start_ != nullptr) unused_[0] = bytes;
}

void* SharedHeap::allocate(size_t bytes) {
  if (bytes > part_bytes_) return nullptr;
  const size_t length = whole_pages(bytes);
  void* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto room = std::find_if(unused_.begin(), unused_.end(),
                                   [length](const auto& each) { return each.second >= length; });
    if (withdrawn_ || room == unused_.end()) return nullptr;
    const auto [offset, found] = *room;
    unused_.erase(room);
    if (found > length) unused_[offset + length] = found - length;
    used_[offset] = length;
    block = own_ + offset;
  }
  std::lock_guard<std::mutex> lock(blocks().mutex);
  blocks().heaps[block] = shared_from_this();
  return block;
}

bool SharedHeap::free(void* memory) {
  std::shared_ptr<SharedHeap> heap;
  {
    std::lock_guard<std::mutex> lock(blocks().mutex);
    const auto found = blocks().heaps.find(memory);
    if (found == blocks().heaps.end()) return false;
    heap = std::move(found->second);
    blocks().heaps.erase(found);
  }
  heap->give_back(heap->offset_of(memory));
  return true;
}

void SharedHeap::give_back(size_t offset) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto block = used_.find(offset);
  size_t length = block->second;
  used_.erase(block);
  // The memory goes back to the system: of the file, or if it was withdrawn from it, of this process. That
  // takes 0.2 s for a GiB, in which the engine asks for other places: all ranks would wait.
  lock.unlock();
  if (madvise(own_ + offset, length, MADV_REMOVE) != 0) madvise(own_ + offset, length, MADV_DONTNEED);
  lock.lock();
  // With its neighbours it is one.
  const auto after = unused_.find(offset + length);
  if (after != unused_.end()) {
    length += after->second;
    unused_.erase(after);
  }
  const auto next = unused_.lower_bound(offset);
  if (next != unused_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  unused_[offset] = length;
}

uint64_t SharedHeap::place_of(const void* memory, size_t bytes) const {
  if (!own(memory)) return kNowhere;
  const size_t offset = offset_of(memory);
  std::lock_guard<std::mutex> lock(mutex_);
  if (withdrawn_) return kNowhere;
  const auto next = used_.upper_bound(offset);
  if (next == used_.begin()) return kNowhere;
  const auto& [start, length] = *std::prev(next);
  if (offset - start > length || bytes > length - (offset - start)) return kNowhere;
  return static_cast<uint64_t>(own_ - start_) + offset;
}

std::byte* SharedHeap::at(uint64_t place, size_t bytes) const {
  if (start_ == nullptr || place > all_bytes_ || bytes > all_bytes_ - place) return nullptr;
  return start_ + place;
}

void SharedHeap::withdraw(const Pieces& pieces) {
  std::lock_guard<std::mutex> lock(mutex_);
  withdrawn_ = true;
  for (const Piece& piece : pieces) {
    if (!own(piece.data)) continue;
    const size_t begin = offset_of(piece.data) / kPage * kPage;
    const size_t length = whole_pages(offset_of(piece.data) + piece.bytes) - begin;
    void* copy = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) continue;  // no memory left for it: then it stays as it is
    std::memcpy(copy, own_ + begin, length);
    if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, own_ + begin) == MAP_FAILED)
      munmap(copy, length);
  }
}

}  // namespace hvd
