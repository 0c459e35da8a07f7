// Collectives through shared staging memory: one-shot for what is small, a pipeline of slots for the rest. An
// allreduce of tensors that are in the heap, on all ranks, goes without: each member combines its share of
// all where they are. Who may touch which memory when is ShmProtocol's; this is what is copied and computed.
#pragma once

#include <memory>
#include <vector>

#include "comm/pieces.h"
#include "comm/shm/group.h"
#include "comm/shm/heap.h"
#include "comm/tuning.h"

namespace hvd {

class ShmCommunicator final : public Communicator {
 public:
  // `tuning` is the transport's and may change from one collective to the next; `heap` is null on all ranks
  // or on none.
  ShmCommunicator(const ShmSegment& segment, StagingUse<ShmGroup>& staging, SharedHeap* heap, int id,
                  std::vector<int> members, int rank, const AbortSignal& abort, const Tuning& tuning);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status barrier() override;
  Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) override;
  Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in, const Pieces& out) override;
  Status allgather(const Pieces& in, const std::vector<Pieces>& out) override;
  Status broadcast(const Pieces& data, int root) override;
  Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) override;

 private:
  // All of these return false only when the abort signal was raised.
  bool allreduce_once(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes);
  bool allreduce_pipelined(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes);
  // What all members have in the heap is combined there. `elsewhere`: somebody has it elsewhere, and nothing
  // was done.
  bool allreduce_in_heap(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes,
                         bool& elsewhere);
  bool may_be_in_heap(size_t bytes) const;
  // The part of all members' tensors that is this one's to combine.
  void combine_share(const Reduction& reduction, const std::vector<Pieces>& in,
                     const std::vector<Pieces>& out, size_t bytes);
  bool reducescatter_once(const Reduction& reduction, const std::vector<Pieces>& in, const Pieces& out,
                          size_t bytes);
  bool reducescatter_pipelined(const Reduction& reduction, const std::vector<Pieces>& in, const Pieces& out,
                               size_t largest);
  bool allgather_once(const Pieces& in, const std::vector<Pieces>& out, size_t largest);
  bool allgather_pipelined(const Pieces& in, const std::vector<Pieces>& out, size_t largest);
  bool broadcast_once(const Pieces& data, int root, size_t bytes);
  bool broadcast_pipelined(const Pieces& data, int root, size_t bytes);
  // What is left for the pipeline is in `to_send` and `to_come`, in bytes by member, and `steps`.
  bool alltoall_once(const std::vector<Pieces>& in, const std::vector<Pieces>& out,
                     std::vector<size_t>& to_send, std::vector<size_t>& to_come, uint32_t& steps);
  bool alltoall_pipelined(const std::vector<Pieces>& in, const std::vector<Pieces>& out,
                          const std::vector<size_t>& to_send, const std::vector<size_t>& to_come,
                          uint32_t steps);

  // One-shot memory: inline in the flag if it fits there, else in staging.
  static bool staged(size_t bytes) { return bytes > sizeof(Flag::payload); }
  std::byte* inline_bytes(int member) const;
  std::byte* once_bytes(int member, size_t bytes) const;
  void end_once(size_t bytes) {
    if (staged(bytes)) protocol_.end_staged();
  }

  // Pipeline memory. What a member has for everybody takes a slot as a whole, in chunks of this size.
  size_t chunk_bytes() const { return std::min<size_t>(size_ * part_bytes(), 128 << 10); }
  // What one has for another, in chunks of this.
  size_t part_bytes() const {
    return std::max<size_t>(sub_bytes_ / static_cast<size_t>(tuning_.slot_parts) / 64 * 64, 64);
  }
  std::byte* slot(int member, uint32_t step) const {
    return segment_.ring(members_[member]) + (step % kSlots) * size_ * sub_bytes_;
  }
  std::byte* sub_slot(uint32_t step, SubSlot place) const {
    return slot(place.owner, step) + place.index * sub_bytes_;
  }
  // The inputs of a step for this rank, in `sources_`.
  void find_sources(uint32_t step);
  // In step k of `steps`, when all members have come.
  void keep_apart(uint32_t k, uint32_t steps);

  Status outcome(bool success) const { return success ? Status() : group_->waiting().abort.reason(); }
  int after(int distance) const { return (rank_ + distance) % size_; }

  const ShmSegment segment_;
  const std::vector<int> members_;  // ranks of the segment
  const std::shared_ptr<ShmGroup> group_;
  const int rank_;  // within members_
  const int size_;
  const size_t sub_bytes_;
  const Tuning& tuning_;
  SharedHeap* const heap_;
  ShmProtocol<ShmGroup> protocol_;
  std::vector<std::byte*> sources_;
};

}  // namespace hvd
