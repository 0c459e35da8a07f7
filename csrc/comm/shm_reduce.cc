// The shared-memory collectives that compute: allreduce and reducescatter.
#include <algorithm>

#include "comm/shm_chunks.h"
#include "comm/shm_communicator.h"

namespace hvd {

namespace {

// The one-shot exchange reads every member's whole input, so its limit falls with their number.
size_t once_limit(int size) { return std::clamp<size_t>((128 << 10) / size, 4 << 10, kOnceBytes); }

}  // namespace

// ---- allreduce

Status ShmCommunicator::allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) {
  size_t bytes = total_bytes(in);
  if (bytes == 0) return {};
  return outcome(bytes <= once_limit(size_) ? allreduce_once(reduction, in, out, bytes)
                                            : allreduce_pipelined(reduction, in, out, bytes));
}

bool ShmCommunicator::allreduce_once(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                     size_t bytes) {
  if (!begin_once(bytes)) return false;
  Cursor mine(in);
  gather(mine, once_bytes(rank_, bytes), bytes);
  once_.show();
  if (!once_.await_all()) return false;
  for (int member = 0; member < size_; ++member) sources_[member] = once_bytes(member, bytes);
  Cursor from(in), to(out);
  reduce(reduction, from, rank_, sources_, -1, to, bytes);
  end_once(bytes);
  return true;
}

// Chunk k is cut into a part for each member, who reduces it. The result takes the place of what the next
// member has put there for it: between two ranks, the memory in which an input came is the one in which its
// result goes back. Three steps of the pipeline overlap: the input of chunk k, the reduction of chunk k-1 and
// the output of chunk k-2.
bool ShmCommunicator::allreduce_pipelined(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                          size_t bytes) {
  const uint32_t steps = parts(bytes, sub_bytes_ * size_);
  const size_t part = round_up(parts(bytes, static_cast<size_t>(steps) * size_), 64);
  auto range = [&](uint32_t k, int member) {
    return Range(bytes, part, static_cast<size_t>(k) * size_ + member);
  };
  if (!own_staging()) return false;
  staging_.steps = steps_ + steps;
  RankFlags& mine = *(*flags_)[rank_];
  Cursor input(in), own_input(in), own_output(out), output(out), next(in);

  auto publish = [&](uint32_t k) {
    const uint32_t step = steps_ + k;
    if (!wait_others(&RankFlags::fetched, step + 1 - kSlots)) return false;
    for (int i = 1; i < size_; ++i) {
      Range chunk = range(k, after(i));
      input.seek(chunk.offset);
      gather(input, sub_slot(rank_, step, after(i)), chunk.bytes);
    }
    post_published(k);
    return true;
  };
  auto combine = [&](uint32_t k) {
    const uint32_t step = steps_ + k;
    if (!await_published(k)) return false;
    for (int member = 0; member < size_; ++member) sources_[member] = sub_slot(member, step, rank_);
    Range chunk = range(k, rank_);
    own_input.seek(chunk.offset);
    own_output.seek(chunk.offset);
    reduce(reduction, own_input, rank_, sources_, after(1), own_output, chunk.bytes,
           next.look(range(k + 2, after(1)).offset));
    post(mine.reduced, step + 1);
    return true;
  };
  auto fetch = [&](uint32_t k) {
    const uint32_t step = steps_ + k;
    for (int i = 1; i < size_; ++i) {
      if (!wait((*flags_)[after(i)]->reduced, step + 1, waiting_)) return false;
      Range chunk = range(k, after(i));
      output.seek(chunk.offset);
      scatter(sub_slot(after(i + 1), step, after(i)), output, chunk.bytes,
              next.look(i == 1 ? range(k + 2, rank_).offset : range(k + 3, after(i)).offset));
    }
    post(mine.fetched, step + 1);
    return true;
  };
  for (uint32_t k = 0; k < steps + 2; ++k) {
    if (k < steps && !publish(k)) return false;
    if (k >= 1 && k - 1 < steps && !combine(k - 1)) return false;
    if (k >= 2 && !fetch(k - 2)) return false;
  }
  end_steps(steps);
  return true;
}

// ---- reducescatter

Status ShmCommunicator::reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                                      const Pieces& out) {
  size_t bytes = total_of(in);
  if (bytes == 0) return {};
  return outcome(bytes <= kOnceBytes ? reducescatter_once(reduction, in, out, bytes)
                                     : reducescatter_pipelined(reduction, in, out, largest_of(in)));
}

bool ShmCommunicator::reducescatter_once(const Reduction& reduction, const std::vector<Pieces>& in,
                                         const Pieces& out, size_t bytes) {
  if (!begin_once(bytes)) return false;
  std::byte* mine = once_bytes(rank_, bytes);
  size_t offset = 0, own_offset = 0;
  for (int member = 0; member < size_; ++member) {
    size_t share = total_bytes(in[member]);
    Cursor from(in[member]);
    if (member == rank_) {
      own_offset = offset;
    } else {
      gather(from, mine + offset, share);
    }
    offset += share;
  }
  once_.show();
  if (!once_.await_all()) return false;
  for (int member = 0; member < size_; ++member) sources_[member] = once_bytes(member, bytes) + own_offset;
  Cursor from(in[rank_]), to(out);
  reduce(reduction, from, rank_, sources_, -1, to, total_bytes(out));
  end_once(bytes);
  return true;
}

bool ShmCommunicator::reducescatter_pipelined(const Reduction& reduction, const std::vector<Pieces>& in,
                                              const Pieces& out, size_t largest) {
  std::vector<Cursor> input = cursors_of(in);
  const std::vector<size_t> bytes = bytes_of(in);
  Cursor output(out);
  auto publish = [&](uint32_t k, uint32_t step) {
    if (!wait_others(&RankFlags::reduced, step + 1 - kSlots)) return false;
    for (int i = 1; i < size_; ++i) {
      int member = after(i);
      gather(input[member], sub_slot(rank_, step, member), Range(bytes[member], sub_bytes_, k).bytes);
    }
    return true;
  };
  auto consume = [&](uint32_t k, uint32_t step) {
    if (!await_published(k)) return false;
    for (int member = 0; member < size_; ++member) sources_[member] = sub_slot(member, step, rank_);
    reduce(reduction, input[rank_], rank_, sources_, -1, output, Range(bytes[rank_], sub_bytes_, k).bytes);
    return true;
  };
  return two_stages(parts(largest, sub_bytes_), publish, consume);
}

}  // namespace hvd
