// Allreduce of tensors that all members have in the heap.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/not_copied.h"
#include "comm/chunks.h"
#include "comm/course.h"
#include "comm/shm/communicator.h"
#include "kernels/kernels.h"

namespace hvd {

namespace {

constexpr size_t kLeast = 64 << 10;  // bytes; below, to ask everyone costs more than it saves
constexpr size_t kChunk = 32 << 10;  // that stays in a cache while it is copied to the others

// What a member shows.
struct Shown {
  struct Part {
    uint64_t in, out;  // places
    uint64_t bytes;
  };
  uint64_t count;  // 0: it has something elsewhere
  Part parts[(kOnceBytes - sizeof(uint64_t)) / sizeof(Part)];
};
static_assert(sizeof(Shown) <= kOnceBytes);

// What lies side by side, in and out, is one part.
void show(const SharedHeap& heap, const Pieces& in, const Pieces& out, Shown& shown) {
  size_t count = 0;
  shown.count = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].bytes == 0) continue;
    const Shown::Part part{heap.place_of(in[i].data, in[i].bytes), heap.place_of(out[i].data, out[i].bytes),
                           in[i].bytes};
    if (part.in == SharedHeap::kNowhere || part.out == SharedHeap::kNowhere) return;
    Shown::Part& last = shown.parts[count == 0 ? 0 : count - 1];
    if (count > 0 && last.in + last.bytes == part.in && last.out + last.bytes == part.out) {
      last.bytes += part.bytes;
    } else if (count == std::size(shown.parts)) {
      return;
    } else {
      shown.parts[count++] = part;
    }
  }
  shown.count = count;
}

// False if it is not all there.
bool find(const SharedHeap& heap, const Shown& shown, Pieces& in, Pieces& out) {
  if (shown.count == 0 || shown.count > std::size(shown.parts)) return false;
  for (size_t i = 0; i < shown.count; ++i) {
    const Shown::Part& part = shown.parts[i];
    in.push_back({heap.at(part.in, part.bytes), part.bytes});
    out.push_back({heap.at(part.out, part.bytes), part.bytes});
    if (in.back().data == nullptr || out.back().data == nullptr) return false;
  }
  return true;
}

// Takes the tensors back at its end, also by an exception, while others may still be at them.
struct Withdrawal : NotCopied {
  Withdrawal(SharedHeap* heap, const Pieces& in, const Pieces& out) : heap(heap), in(in), out(out) {}
  ~Withdrawal() {
    if (armed) heap->withdraw({&in, &out});
  }
  SharedHeap* const heap;
  const Pieces &in, &out;
  bool armed = false;
};

}  // namespace

// Members look for it only together, so it must depend on nothing that is one's own.
bool ShmCommunicator::may_be_in_heap(size_t bytes) const { return heap_ != nullptr && bytes >= kLeast; }

// Two exchanges: each shows where its tensors are; then each has written its share of the results to all
// members. In between, a share is touched by nobody but the member that combines it.
bool ShmCommunicator::allreduce_in_heap(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                        size_t bytes, bool& elsewhere) {
  Withdrawal unless_shared(heap_, in, out);
  auto shown = [&](int member) { return reinterpret_cast<Shown*>(once_bytes(member, sizeof(Shown))); };
  if (!protocol_.begin_showing(staged(sizeof(Shown)))) return false;
  hvd::show(*heap_, in, out, *shown(rank_));
  unless_shared.armed = true;
  protocol_.show();  // from here on others may read and write them
  if (!protocol_.await_all_shown()) return false;
  std::vector<Pieces> inputs(members_.size()), outputs(members_.size());
  for (int member = 0; member < size_; ++member)
    if (!find(*heap_, *shown(member), inputs[member], outputs[member])) elsewhere = true;
  end_once(sizeof(Shown));
  if (elsewhere) {
    unless_shared.armed = false;
    return true;
  }

  goes(Algorithm::kInPlace);
  combine_share(reduction, inputs, outputs, bytes);
  if (!protocol_.begin_showing(false)) return false;
  protocol_.show();
  unless_shared.armed = !protocol_.await_all_shown();
  return !unless_shared.armed;
}

void ShmCommunicator::combine_share(const Reduction& reduction, const std::vector<Pieces>& in,
                                    const std::vector<Pieces>& out, size_t bytes) {
  const size_t length = round_up((bytes + members_.size() - 1) / members_.size(), 64);
  const Chunk share(bytes, length, static_cast<size_t>(rank_));
  std::vector<Cursor> from = cursors_of(in), to = cursors_of(out);
  for (Cursor& cursor : from) cursor.seek(share.offset);
  for (Cursor& cursor : to) cursor.seek(share.offset);
  for (size_t left = share.bytes, now; left > 0; left -= now) {
    now = size_ > 2 ? std::min(left, kChunk) : left;
    for (const Cursor& cursor : from) now = std::min(now, cursor.contiguous());
    for (int member = 0; member < size_; ++member) sources_[member] = from[member].here();
    // This rank's result and the next one's are the kernel's to write.
    std::byte* const result = to[rank_].here();
    kernels::reduce(reduction, result, to[after(1)].here(),
                    reinterpret_cast<const void* const*>(sources_.data()), size_,
                    now / size_of(reduction.type));
    for (int i = 2; i < size_; ++i) std::memcpy(to[after(i)].here(), result, now);
    for (Cursor& cursor : from) cursor.advance(now);
    for (Cursor& cursor : to) cursor.advance(now);
  }
}

}  // namespace hvd
