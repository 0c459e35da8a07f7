// The shared-memory collectives that only move data: allgather, broadcast and alltoall.
#include <algorithm>
#include <cstring>

#include "comm/chunks.h"
#include "comm/course.h"
#include "comm/shm/communicator.h"

namespace hvd {

// ---- allgather

Status ShmCommunicator::allgather(const Pieces& in, const std::vector<Pieces>& out) {
  size_t largest = largest_of(out);
  if (largest == 0) return {};
  const bool once = largest <= kOnceBytes;
  goes(once ? Algorithm::kOnce : Algorithm::kPipelined);
  return outcome(once ? allgather_once(in, out, largest) : allgather_pipelined(in, out, largest));
}

bool ShmCommunicator::allgather_once(const Pieces& in, const std::vector<Pieces>& out, size_t largest) {
  if (!protocol_.begin_showing(staged(largest))) return false;
  Cursor mine(in);
  gather(mine, once_bytes(rank_, largest), total_bytes(in));
  protocol_.show();
  copy(in, out[rank_]);
  if (!protocol_.await_all_shown()) return false;
  for (int i = 1; i < size_; ++i) {
    Cursor to(out[after(i)]);
    scatter(once_bytes(after(i), largest), to, total_bytes(out[after(i)]));
  }
  end_once(largest);
  return true;
}

bool ShmCommunicator::allgather_pipelined(const Pieces& in, const std::vector<Pieces>& out, size_t largest) {
  Cursor input(in), own_input(in);
  std::vector<Cursor> output = cursors_of(out);
  const std::vector<size_t> bytes = bytes_of(out);
  auto chunk = [&](int member, uint32_t k) { return Chunk(bytes[member], chunk_bytes(), k).bytes; };
  auto publish = [&](uint32_t k, uint32_t step) { gather(input, slot(rank_, step), chunk(rank_, k)); };
  auto take = [&](uint32_t k, uint32_t step, int member) {
    if (member == rank_) {
      copy(own_input, output[rank_], chunk(rank_, k));
    } else {
      scatter(slot(member, step), output[member], chunk(member, k));
    }
  };
  return protocol_.move(chunk_count(largest, chunk_bytes()), -1, publish, take);
}

// ---- broadcast

Status ShmCommunicator::broadcast(const Pieces& data, int root) {
  size_t bytes = total_bytes(data);
  if (bytes == 0) return {};
  const bool once = bytes <= kOnceBytes;
  goes(once ? Algorithm::kOnce : Algorithm::kPipelined);
  return outcome(once ? broadcast_once(data, root, bytes) : broadcast_pipelined(data, root, bytes));
}

bool ShmCommunicator::broadcast_once(const Pieces& data, int root, size_t bytes) {
  Cursor place(data);
  if (rank_ == root) {
    if (!protocol_.begin_showing(staged(bytes))) return false;
    gather(place, once_bytes(rank_, bytes), bytes);
    protocol_.show();
  } else {
    protocol_.begin_listening();
    protocol_.show();
    if (!protocol_.await_shown(root)) return false;
    scatter(once_bytes(root, bytes), place, bytes);
  }
  end_once(bytes);
  return true;
}

bool ShmCommunicator::broadcast_pipelined(const Pieces& data, int root, size_t bytes) {
  Cursor place(data);
  auto chunk = [&](uint32_t k) { return Chunk(bytes, chunk_bytes(), k).bytes; };
  auto publish = [&](uint32_t k, uint32_t step) { gather(place, slot(rank_, step), chunk(k)); };
  auto take = [&](uint32_t k, uint32_t step, int) {
    if (rank_ != root) scatter(slot(root, step), place, chunk(k));
  };
  return protocol_.move(chunk_count(bytes, chunk_bytes()), root, publish, take);
}

// ---- alltoall

// A member knows only its own sizes, so every alltoall begins with a one-shot exchange of how many steps each
// needs. A member with little to send adds all of it and needs none.
Status ShmCommunicator::alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) {
  copy(in[rank_], out[rank_]);
  std::vector<size_t> to_send = bytes_of(in), to_come = bytes_of(out);
  to_send[rank_] = to_come[rank_] = 0;
  uint32_t steps = 0;
  const bool shown = alltoall_once(in, out, to_send, to_come, steps);
  goes(steps == 0 ? Algorithm::kOnce : Algorithm::kPipelined);
  return outcome(shown && (steps == 0 || alltoall_pipelined(in, out, to_send, to_come, steps)));
}

bool ShmCommunicator::alltoall_once(const std::vector<Pieces>& in, const std::vector<Pieces>& out,
                                    std::vector<size_t>& to_send, std::vector<size_t>& to_come,
                                    uint32_t& steps) {
  const size_t table_bytes = size_ * sizeof(uint32_t);
  size_t total = 0;
  for (size_t bytes : to_send) total += bytes;
  if (!protocol_.begin_showing(staged(kOnceBytes))) return false;
  if (table_bytes + total <= kOnceBytes) {
    std::byte* mine = once_bytes(rank_, kOnceBytes);
    auto offset = static_cast<uint32_t>(table_bytes);
    for (int member = 0; member < size_; ++member) {
      std::memcpy(mine + member * sizeof offset, &offset, sizeof offset);
      Cursor from(in[member]);
      gather(from, mine + offset, to_send[member]);
      offset += static_cast<uint32_t>(to_send[member]);
      to_send[member] = 0;
    }
  } else {
    steps = chunk_count(*std::max_element(to_send.begin(), to_send.end()), part_bytes());
  }
  std::memcpy(inline_bytes(rank_), &steps, sizeof steps);
  protocol_.show();
  if (!protocol_.await_all_shown()) return false;
  for (int i = 1; i < size_; ++i) {
    int member = after(i);
    uint32_t theirs = 0;
    std::memcpy(&theirs, inline_bytes(member), sizeof theirs);
    steps = std::max(steps, theirs);
    if (theirs > 0) continue;
    const std::byte* from = once_bytes(member, kOnceBytes);
    uint32_t offset = 0;
    std::memcpy(&offset, from + rank_ * sizeof offset, sizeof offset);
    Cursor to(out[member]);
    scatter(from + offset, to, to_come[member]);
    to_come[member] = 0;
  }
  end_once(kOnceBytes);
  return true;
}

bool ShmCommunicator::alltoall_pipelined(const std::vector<Pieces>& in, const std::vector<Pieces>& out,
                                         const std::vector<size_t>& to_send,
                                         const std::vector<size_t>& to_come, uint32_t steps) {
  std::vector<Cursor> input = cursors_of(in), output = cursors_of(out);
  auto publish = [&](uint32_t k, uint32_t step) {
    for (int i = 1; i < size_; ++i) {
      int member = after(i);
      gather(input[member], sub_slot(step, input_for(rank_, member)),
             Chunk(to_send[member], part_bytes(), k).bytes);
    }
  };
  auto take = [&](uint32_t k, uint32_t step, int member) {
    if (member == rank_) return;
    scatter(sub_slot(step, input_for(member, rank_)), output[member],
            Chunk(to_come[member], part_bytes(), k).bytes);
  };
  return protocol_.move(steps, -1, publish, take);
}

}  // namespace hvd
