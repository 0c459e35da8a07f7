#include "comm/shm/communicator.h"

#include <utility>

namespace hvd {

ShmCommunicator::ShmCommunicator(const ShmSegment& segment, StagingUse<ShmGroup>& staging, SharedHeap* heap,
                                 int id, std::vector<int> members, int rank, const AbortSignal& abort,
                                 const Tuning& tuning)
    : segment_(segment),
      members_(std::move(members)),
      group_(std::make_shared<ShmGroup>(segment_, id, members_, rank, abort)),
      rank_(group_->rank()),
      size_(group_->size()),
      sub_bytes_(segment_.sub_slot_bytes(size_)),
      tuning_(tuning),
      heap_(heap),
      protocol_(group_, staging),
      sources_(members_.size()) {}

std::byte* ShmCommunicator::inline_bytes(int member) const {
  return group_->flag(ShmProtocol<ShmGroup>::shown(protocol_.number()), member).payload;
}

std::byte* ShmCommunicator::once_bytes(int member, size_t bytes) const {
  return staged(bytes) ? segment_.once(members_[member], protocol_.number()) : inline_bytes(member);
}

void ShmCommunicator::find_sources(uint32_t step) {
  for (int member = 0; member < size_; ++member) sources_[member] = sub_slot(step, input_for(member, rank_));
}

void ShmCommunicator::keep_apart(uint32_t k, uint32_t steps) {
  // Ranks that have a processor each are spread by the scheduler in long operations, and better: it knows
  // which processors are busy with something else.
  constexpr uint32_t kLookEvery = 4, kBrief = 16;
  if (group_->waiting().crowded ? k % kLookEvery == 0 : steps <= kBrief && k == 0) group_->keep_apart();
}

Status ShmCommunicator::barrier() {
  if (!protocol_.begin_showing(false)) return outcome(false);
  protocol_.show();
  return outcome(protocol_.await_all_shown());
}

}  // namespace hvd
