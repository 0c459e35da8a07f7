#include "comm/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

namespace hvd {
namespace {

constexpr size_t kPage = SharedHeap::kPage;
constexpr size_t kMostForOne = size_t{64} << 30, kMostForAll = size_t{256} << 30;

// Which heap a block is of; the block keeps it.
struct Blocks {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<SharedHeap>> heaps;
};
std::atomic<Blocks*>& all_blocks() {
  static std::atomic<Blocks*> all = new Blocks;  // never destroyed: arrays may end after everything else
  return all;
}
Blocks& blocks() { return *all_blocks().load(std::memory_order_acquire); }

size_t whole_pages(size_t bytes) { return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage; }

}  // namespace

size_t SharedHeap::useful_bytes(int ranks) {
  return std::min(kMostForOne, kMostForAll / static_cast<size_t>(ranks) / kPage * kPage) *
         static_cast<size_t>(ranks);
}

SharedHeap::SharedHeap(std::shared_ptr<void> mapping, int file, void* start, size_t bytes, int ranks,
                       int rank)
    : mapping_(std::move(mapping)),
      file_(start == nullptr ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 0)),
      start_(static_cast<std::byte*>(start)),
      part_bytes_(bytes),
      all_bytes_(bytes * static_cast<size_t>(ranks)),
      own_(start_ == nullptr ? nullptr : start_ + bytes * static_cast<size_t>(rank)) {
  // Without a descriptor nothing could be withdrawn.
  if (file_ >= 0) unused_[0] = bytes;
}

SharedHeap::~SharedHeap() {
  if (file_ >= 0) close(file_);
}

void SharedHeap::forget_all() { all_blocks().store(new Blocks, std::memory_order_release); }

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

void SharedHeap::withdraw(std::initializer_list<const Pieces*> pieces) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (withdrawn_) return;
  withdrawn_ = true;
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const Pieces* each : pieces) {
    for (const Piece& piece : *each) {
      if (piece.bytes == 0 || !own(piece.data)) continue;
      const size_t begin = offset_of(piece.data);
      ranges.emplace_back(begin / kPage * kPage, whole_pages(begin + piece.bytes));
    }
  }
  std::sort(ranges.begin(), ranges.end());
  size_t done = 0;  // a page that is private already must not be taken from the file again
  for (const auto& [begin, end] : ranges) {
    if (std::max(begin, done) < end) make_private(std::max(begin, done), end);
    done = std::max(done, end);
  }
}

// The application may be writing to other tensors in these pages: none of that may be lost. What it writes
// before the mapping changes is in the file, from which the kernel copies each page that is then written to.
void SharedHeap::make_private(size_t begin, size_t end) {
  std::byte* const start = own_ + begin;
  const auto offset = static_cast<off_t>(start - static_cast<std::byte*>(mapping_.get()));
  if (mmap(start, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file_, offset) == MAP_FAILED)
    return;  // no memory left for it: then it stays as it is
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < end - begin; at += page)
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(start + at), 0, __ATOMIC_RELAXED);
}

}  // namespace hvd
