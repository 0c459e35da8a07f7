// Where the ranks of a world that share memory meet, each waiting for the same small operation: if all come
// with the same one they have agreed on it, without the coordinator, and what they came with is its data.
//
// One word of shared memory says how many have come. Each change of it is one atomic step (MeetingWord), so
// there is one truth about every meeting: all came, or one of them left before. Who comes writes to memory
// that alternates with the meetings held: a rank that comes to meeting n+1 has read all of meeting n. What
// the last one has combined needs one place only: when it writes there all others have come, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

enum class Met { kOpen, kAgreed, kParted };

// From the lowest bits: meetings that were agreed in, who has come to the next one, and how often one that
// was not has ended. All wrap around: no two of them can pass while a rank waits in one.
struct MeetingWord {
  static constexpr uint64_t kOne = uint64_t{1} << 16;
  static uint16_t agreed(uint64_t word) { return static_cast<uint16_t>(word); }
  static uint16_t come(uint64_t word) { return static_cast<uint16_t>(word >> 16); }
  static uint32_t parted(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

  static uint64_t make(uint32_t parted, uint16_t agreed) { return uint64_t{parted} << 32 | agreed; }
  static uint64_t after_agreeing(uint64_t word) {
    return make(parted(word), static_cast<uint16_t>(agreed(word) + 1));
  }
  static uint64_t after_parting(uint64_t word) { return make(parted(word) + 1, agreed(word)); }
  // Of the meeting that a rank came to by making the word `then`.
  static Met outcome(uint64_t then, uint64_t now) {
    if (agreed(now) != agreed(then)) return Met::kAgreed;
    return parted(now) != parted(then) ? Met::kParted : Met::kOpen;
  }
};

// Whether to come to a meeting for an operation. What it depends on is the same on all ranks, but for the
// misses: ranks that come seldom come at the same time.
class WorthMeeting {
 public:
  bool worth_a_try() const { return misses_ < kMisses || runs_ % kSeldom == 0; }
  void tried(bool agreed) {
    if (agreed) {
      ran();
      misses_ = 0;
    } else if (misses_ < kMisses) {
      ++misses_;
    }
  }
  void ran() { ++runs_; }

 private:
  static constexpr uint32_t kMisses = 8, kSeldom = 16;
  uint32_t runs_ = 0, misses_ = 0;
};

class Meeting {
 public:
  static constexpr size_t kRoom = 32 << 10;  // for what a rank comes with
  static size_t bytes(int size);

  // `memory` is the start of bytes(size) that all ranks share, zero at first.
  Meeting(void* memory, int rank, int size);

  int size() const { return size_; }
  // Ranks that go on without meetings until they are back. The others need not wait for them in one.
  bool somebody_is_away() const { return place_->away.load(std::memory_order_acquire) != 0; }
  void go_away() { place_->away.fetch_add(1, std::memory_order_acq_rel); }
  void come_back() { place_->away.fetch_sub(1, std::memory_order_acq_rel); }

  // Comes at the time `now` with operation `id` (not 0) and what write() puts into its room. One meeting at a
  // time. If it is the last one, and all have come with the same, it may combine() the rooms into another
  // one for all; false: it has not.
  template <class Write, class Combine>
  void come(uint32_t id, uint64_t now, Write write, Combine combine) {
    Slot& mine = slot(place_->word.load(std::memory_order_acquire), rank_);
    mine.since = now;
    write(mine.room);
    if (!come_with(mine, id)) return;
    const bool same = all_have(id);
    place_->is_combined = same && combine(place_->combined);
    conclude(same);
  }
  Met look() const { return MeetingWord::outcome(then_, place_->word.load(std::memory_order_acquire)); }
  // Ends the meeting unless all have come; how it has ended.
  Met leave();
  // What everybody came with, after kAgreed, until this rank comes to the next meeting.
  std::byte* room(int rank) { return slot(then_, rank).room; }
  uint64_t since(int rank) { return slot(then_, rank).since; }
  // What the last one made of that; nullptr if that is left to each.
  const std::byte* combined() const { return place_->is_combined ? place_->combined : nullptr; }
  // After kAgreed: moves to another processor if this one has too many ranks.
  void keep_apart();

 private:
  struct Place {
    alignas(128) std::atomic<uint64_t> word;
    std::atomic<uint32_t> away;
    alignas(64) bool is_combined;
    alignas(64) std::byte combined[kRoom];
  };
  struct alignas(128) Slot {
    std::atomic<uint32_t> id;
    std::atomic<int> processor;  // where the rank ran when it came: a hint
    uint64_t since;              // when it came
    alignas(64) std::byte room[kRoom];
  };

  Slot& slot(uint64_t word, int rank) {
    return slots_[(MeetingWord::agreed(word) & 1) * static_cast<size_t>(size_) + static_cast<size_t>(rank)];
  }
  bool come_with(Slot& mine, uint32_t id);
  bool all_have(uint32_t id);
  void conclude(bool same);

  Place* const place_;
  Slot* const slots_;
  const int rank_, size_;
  uint64_t then_ = 0;
  std::vector<int> runs_on_;
};

}  // namespace hvd
