#include "engine/meeting.h"

#include "base/processors.h"

namespace hvd {

size_t Meeting::bytes(int size) { return sizeof(Place) + 2 * static_cast<size_t>(size) * sizeof(Slot); }

Meeting::Meeting(void* memory, int rank, int size)
    : place_(static_cast<Place*>(memory)),
      slots_(reinterpret_cast<Slot*>(place_ + 1)),
      rank_(rank),
      size_(size),
      runs_on_(static_cast<size_t>(size)) {}

// Whether it is the last one.
bool Meeting::come_with(Slot& mine, uint32_t id) {
  mine.id.store(id, std::memory_order_relaxed);
  const int here = this_processor();
  if (mine.processor.load(std::memory_order_relaxed) != here)
    mine.processor.store(here, std::memory_order_relaxed);
  then_ = place_->word.fetch_add(MeetingWord::kOne, std::memory_order_acq_rel) + MeetingWord::kOne;
  return MeetingWord::come(then_) == size_;
}

bool Meeting::all_have(uint32_t id) {
  bool same = true;
  for (int rank = 0; rank < size_; ++rank) same &= slot(then_, rank).id.load(std::memory_order_relaxed) == id;
  return same;
}

void Meeting::conclude(bool same) {
  uint64_t expected = then_;  // if it has changed, somebody has left
  place_->word.compare_exchange_strong(
      expected, same ? MeetingWord::after_agreeing(then_) : MeetingWord::after_parting(then_),
      std::memory_order_acq_rel);
}

Met Meeting::leave() {
  for (;;) {
    uint64_t now = place_->word.load(std::memory_order_acquire);
    const Met met = MeetingWord::outcome(then_, now);
    if (met != Met::kOpen) return met;
    if (place_->word.compare_exchange_weak(now, MeetingWord::after_parting(now), std::memory_order_acq_rel))
      return Met::kParted;
  }
}

void Meeting::keep_apart() {
  for (int rank = 0; rank < size_; ++rank)
    runs_on_[static_cast<size_t>(rank)] = slot(then_, rank).processor.load(std::memory_order_relaxed);
  hvd::keep_apart(runs_on_, rank_);
}

}  // namespace hvd
