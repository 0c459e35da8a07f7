// The shared-memory collectives that compute: allreduce and reducescatter.
#include <algorithm>

#include "comm/chunks.h"
#include "comm/course.h"
#include "comm/shm/communicator.h"

namespace hvd {

namespace {

// The one-shot exchange reads every member's whole input, so its limit falls with their number.
size_t once_limit(const Tuning& tuning, int size) {
  return std::clamp<size_t>(static_cast<size_t>(tuning.once_total) / size, 4 << 10, kOnceBytes);
}

}  // namespace

// ---- allreduce

Status ShmCommunicator::allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) {
  size_t bytes = total_bytes(in);
  if (bytes == 0) return {};
  const bool once = bytes <= once_limit(tuning_, size_);
  if (!once && may_be_in_heap(bytes)) {
    bool elsewhere = false;
    const bool done = allreduce_in_heap(reduction, in, out, bytes, elsewhere);
    if (!elsewhere) return outcome(done);
  }
  goes(once ? Algorithm::kOnce : Algorithm::kPipelined);
  return outcome(once ? allreduce_once(reduction, in, out, bytes)
                      : allreduce_pipelined(reduction, in, out, bytes));
}

bool ShmCommunicator::allreduce_once(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                     size_t bytes) {
  if (!protocol_.begin_showing(staged(bytes))) return false;
  Cursor mine(in);
  gather(mine, once_bytes(rank_, bytes), bytes);
  protocol_.show();
  if (!protocol_.await_all_shown()) return false;
  for (int member = 0; member < size_; ++member) sources_[member] = once_bytes(member, bytes);
  Cursor from(in), to(out);
  reduce(reduction, from, rank_, sources_, -1, to, bytes);
  end_once(bytes);
  return true;
}

// Step k has a chunk for each member, who reduces it.
bool ShmCommunicator::allreduce_pipelined(const Reduction& reduction, const Pieces& in, const Pieces& out,
                                          size_t bytes) {
  const uint32_t steps = chunk_count(bytes, part_bytes() * size_);
  const size_t length = round_up(chunk_count(bytes, static_cast<size_t>(steps) * size_), 64);
  auto chunk_of = [&](uint32_t k, int member) {
    return Chunk(bytes, length, static_cast<size_t>(k) * size_ + member);
  };
  Cursor input(in), own_input(in), own_output(out), output(out), next(in);

  auto publish = [&](uint32_t k, uint32_t step) {
    for (int i = 1; i < size_; ++i) {
      Chunk chunk = chunk_of(k, after(i));
      input.seek(chunk.offset);
      gather(input, sub_slot(step, input_for(rank_, after(i))), chunk.bytes);
    }
  };
  auto combine = [&](uint32_t k, uint32_t step) {
    keep_apart(k, steps);
    find_sources(step);
    Chunk chunk = chunk_of(k, rank_);
    own_input.seek(chunk.offset);
    own_output.seek(chunk.offset);
    reduce(reduction, own_input, rank_, sources_, result_of(rank_, size_).owner, own_output, chunk.bytes,
           next.look(chunk_of(k + 2, after(1)).offset));
  };
  auto fetch = [&](uint32_t k, uint32_t step, int member) {
    Chunk chunk = chunk_of(k, member);
    output.seek(chunk.offset);
    scatter(sub_slot(step, result_of(member, size_)), output, chunk.bytes,
            next.look(member == after(1) ? chunk_of(k + 2, rank_).offset : chunk_of(k + 3, member).offset));
  };
  return protocol_.reduce_and_share(steps, publish, combine, fetch);
}

// ---- reducescatter

Status ShmCommunicator::reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                                      const Pieces& out) {
  size_t bytes = total_of(in);
  if (bytes == 0) return {};
  const bool once = bytes <= kOnceBytes;
  goes(once ? Algorithm::kOnce : Algorithm::kPipelined);
  return outcome(once ? reducescatter_once(reduction, in, out, bytes)
                      : reducescatter_pipelined(reduction, in, out, largest_of(in)));
}

bool ShmCommunicator::reducescatter_once(const Reduction& reduction, const std::vector<Pieces>& in,
                                         const Pieces& out, size_t bytes) {
  if (!protocol_.begin_showing(staged(bytes))) return false;
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
  protocol_.show();
  if (!protocol_.await_all_shown()) return false;
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
  const size_t part = part_bytes();
  const uint32_t steps = chunk_count(largest, part);
  auto chunk = [&](int member, uint32_t k) { return Chunk(bytes[member], part, k).bytes; };
  Cursor output(out);
  auto publish = [&](uint32_t k, uint32_t step) {
    for (int i = 1; i < size_; ++i) {
      int member = after(i);
      gather(input[member], sub_slot(step, input_for(rank_, member)), chunk(member, k));
    }
  };
  auto combine = [&](uint32_t k, uint32_t step) {
    keep_apart(k, steps);
    find_sources(step);
    reduce(reduction, input[rank_], rank_, sources_, -1, output, chunk(rank_, k));
  };
  return protocol_.reduce(steps, publish, combine);
}

}  // namespace hvd
