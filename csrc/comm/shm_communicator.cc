#include "comm/shm_communicator.h"

#include <algorithm>
#include <utility>

namespace hvd {

namespace {

std::shared_ptr<const MemberFlags> flags_of(const ShmSegment& segment, int slot,
                                            const std::vector<int>& members) {
  auto flags = std::make_shared<MemberFlags>();
  for (int member : members) flags->push_back(&segment.flags(slot, member));
  return flags;
}

int index_of(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

ShmCommunicator::ShmCommunicator(const ShmSegment& segment, StagingUse& staging, int slot,
                                 std::vector<int> members, int rank, const AbortSignal& abort)
    : segment_(segment),
      staging_(staging),
      slot_(slot),
      members_(std::move(members)),
      rank_(index_of(members_, rank)),
      size_(static_cast<int>(members_.size())),
      sub_bytes_(sub_slot_bytes(segment_.ranks(), size_)),
      waiting_{abort, crowded(segment.ranks())},
      flags_(flags_of(segment_, slot, members_)),
      places_(*flags_, rank_),
      once_(*flags_, rank_, waiting_, places_),
      sources_(members_.size()) {}

// ---- staging memory

bool ShmCommunicator::own_staging() {
  if (staging_.slot == slot_) return true;
  if (staging_.slot >= 0) {
    for (RankFlags* flags : *staging_.members) {
      if (!wait(flags->once_done, staging_.once, waiting_) ||
          !wait(flags->reduced, staging_.steps, waiting_) ||
          !wait(flags->fetched, staging_.steps, waiting_)) {
        return false;
      }
    }
  }
  staging_ = {slot_, flags_, staged_once_, steps_};
  return true;
}

bool ShmCommunicator::begin_once(size_t bytes) {
  if (!once_.begin_writing()) return false;
  if (bytes <= ShmOnce::kInlineBytes) return true;
  if (!own_staging()) return false;
  staging_.once = staged_once_ = once_.number();
  return true;
}

std::byte* ShmCommunicator::once_bytes(int member, size_t bytes) const {
  return bytes <= ShmOnce::kInlineBytes ? once_.inline_bytes(member)
                                        : segment_.once(members_[member], once_.number());
}

void ShmCommunicator::end_once(size_t bytes) {
  if (bytes > ShmOnce::kInlineBytes) once_.done_with_staging();
}

// ---- pipeline

std::byte* ShmCommunicator::slot(int member, uint32_t step) const {
  return segment_.ring(members_[member]) + (step % kSlots) * size_ * sub_bytes_;
}

bool ShmCommunicator::wait_others(Flag RankFlags::* flag, uint32_t value) {
  for (int i = 1; i < size_; ++i) {
    if (!wait((*flags_)[after(i)]->*flag, value, waiting_)) return false;
  }
  return true;
}

void ShmCommunicator::post_published(uint32_t k) {
  places_.tell();
  post((*flags_)[rank_]->published, steps_ + k + 1);
}

bool ShmCommunicator::await_published(uint32_t k) {
  constexpr uint32_t kLookEvery = 4, kBrief = 16;
  if (!wait_others(&RankFlags::published, steps_ + k + 1)) return false;
  // Ranks that have a processor each are spread by the scheduler in long operations, and better: it knows
  // which processors are busy with something else.
  const bool brief = staging_.steps - steps_ <= kBrief;
  if (waiting_.crowded ? k % kLookEvery == 0 : brief && k == 0) places_.look();
  return true;
}

void ShmCommunicator::end_steps(uint32_t steps) {
  steps_ += steps;
  // An operation need not use every flag; the next one counts on all of them.
  RankFlags& mine = *(*flags_)[rank_];
  post(mine.published, steps_);
  post(mine.reduced, steps_);
  post(mine.fetched, steps_);
}

// ---- barrier

Status ShmCommunicator::barrier() {
  if (!once_.begin_writing()) return waiting_.abort.reason();
  once_.show();
  return outcome(once_.await_all());
}

std::unique_ptr<Communicator> make_shm_communicator(const ShmSegment& segment, StagingUse& staging, int slot,
                                                    std::vector<int> members, int rank,
                                                    const AbortSignal& abort) {
  return std::make_unique<ShmCommunicator>(segment, staging, slot, std::move(members), rank, abort);
}

}  // namespace hvd
