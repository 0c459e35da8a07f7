// Collectives through shared staging memory: one-shot for what is small, a pipeline of slots for the rest.
#pragma once

#include <memory>
#include <vector>

#include "comm/pieces.h"
#include "comm/shm_once.h"

namespace hvd {

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const ShmSegment& segment, StagingUse& staging, int slot, std::vector<int> members,
                  int rank, const AbortSignal& abort);

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
  bool own_staging();
  bool allreduce_once(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes);
  bool allreduce_pipelined(const Reduction& reduction, const Pieces& in, const Pieces& out, size_t bytes);
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
  bool begin_once(size_t bytes);
  std::byte* once_bytes(int member, size_t bytes) const;
  void end_once(size_t bytes);

  // The pipeline. Step numbers `step` count over all operations of the communicator.
  std::byte* slot(int member, uint32_t step) const;
  // What a member has for everybody goes in chunks of this size.
  size_t chunk_bytes() const { return std::min<size_t>(size_ * sub_bytes_, 128 << 10); }
  std::byte* sub_slot(int member, uint32_t step, int index) const {
    return slot(member, step) + index * sub_bytes_;
  }
  bool wait_others(Flag RankFlags::* flag, uint32_t value);
  // The k-th step of an operation, by this rank and by all others.
  void post_published(uint32_t k);
  bool await_published(uint32_t k);
  void end_steps(uint32_t steps);
  // Calls publish(k, step) and, one step later, consume(k, step) for k in [0, steps).
  template <typename Publish, typename Consume>
  bool two_stages(uint32_t steps, Publish publish, Consume consume);
  Status outcome(bool success) const { return success ? Status() : waiting_.abort.reason(); }
  int after(int distance) const { return (rank_ + distance) % size_; }

  const ShmSegment segment_;
  StagingUse& staging_;
  const int slot_;
  const std::vector<int> members_;  // world ranks
  const int rank_;                  // within members_
  const int size_;
  const size_t sub_bytes_;
  const Waiting waiting_;
  const std::shared_ptr<const MemberFlags> flags_;
  ShmPlaces places_;
  ShmOnce once_;
  uint32_t staged_once_ = 0;  // the last exchange that used staging
  uint32_t steps_ = 0;        // pipeline steps done
  std::vector<std::byte*> sources_;
};

template <typename Publish, typename Consume>
bool ShmCommunicator::two_stages(uint32_t steps, Publish publish, Consume consume) {
  if (!own_staging()) return false;
  staging_.steps = steps_ + steps;
  RankFlags& mine = *(*flags_)[rank_];
  for (uint32_t k = 0; k <= steps; ++k) {
    if (k < steps) {
      if (!publish(k, steps_ + k)) return false;
      post_published(k);
    }
    if (k > 0) {
      if (!consume(k - 1, steps_ + k - 1)) return false;
      post(mine.reduced, steps_ + k);
    }
  }
  end_steps(steps);
  return true;
}

}  // namespace hvd
