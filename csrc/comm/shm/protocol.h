// When a rank may write to shared memory and when it may read it, apart from what is copied. Two ways to move
// data, which a communicator mixes freely:
//
//   one-shot  Every member shows a few bytes, every member reads what it wants. Two buffers alternate: a
//             member that shows number n has read number n-1, so that buffer may be written for n+1.
//   pipeline  In steps, counted over all operations of the communicator. Step s uses slot s % kSlots of every
//             member. One rule for every collective: nobody writes to its slot for step s before all others
//             have freed step s - kSlots, and a member frees a step when it will not touch any slot of it,
//             its own or another's, any more.
//
// A rank's staging memory (its slots and one-shot buffers) serves all communicators it is in. Before it turns
// from one to another, the members of the former must have read and freed what was left for them. They need
// nothing more from this rank, so that ends.
//
// `Group` is the members of a communicator as one of them sees them. ShmGroup waits for flags in shared
// memory; that of tests/test_shm_protocol.cc notes each step, and all orders in which ranks can take them are
// explored.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace hvd {

constexpr uint32_t kSlots = 4;

// What a member tells the others of its communicator. Counters only grow (and may wrap around), and each has
// the same meaning in every collective.
enum Counter {
  kShownEven,  // its one-shot exchanges with even numbers are in place up to this one
  kShownOdd,   // the same for odd numbers
  kReadOnce,   // it has read what was in staging memory for one-shot exchanges up to this number
  kPublished,  // its input of the pipeline's steps before this one is in its slots
  kReduced,    // its results of the steps before this one are in place
  kFreed,      // it will not touch a slot of the steps before this one again
  kCounters,
};

// Where things are in the slots of a step: sub-slot `index` of member `owner`.
struct SubSlot {
  int owner, index;
};
constexpr SubSlot input_for(int from, int to) { return {from, to}; }
// A result takes the place of what the next member has put there for the one that reduces it: between two
// ranks, the memory in which an input came is the one in which its result goes back.
constexpr SubSlot result_of(int member, int size) { return {(member + 1) % size, member}; }

// Whose data is in a rank's staging memory, and how much of it its members must have used before it goes.
template <class Group>
struct StagingUse {
  std::shared_ptr<Group> group;  // null: nobody's
  uint32_t once = 0;             // number of the last one-shot exchange written
  uint32_t steps = 0;            // pipeline steps written
};

// Functions that return bool are false only when the abort signal was raised.
template <class Group>
class ShmProtocol {
 public:
  ShmProtocol(std::shared_ptr<Group> group, StagingUse<Group>& staging)
      : group_(std::move(group)), staging_(staging) {}

  // ---- one-shot exchanges

  // Begins the next one as a member that shows something, in staging memory if it is `staged`.
  bool begin_showing(bool staged) {
    // A member that came to the previous exchange has read the one before, whose buffer is now written again.
    if (seen_all_ != number_ && !await_others(shown(number_), number_)) return false;
    ++number_;
    if (!staged) return true;
    if (!own_staging()) return false;
    staging_.once = staged_once_ = number_;
    return true;
  }
  // ... as one that only listens: nobody may read from this member.
  void begin_listening() { ++number_; }
  uint32_t number() const { return number_; }
  static Counter shown(uint32_t number) { return number % 2 == 0 ? kShownEven : kShownOdd; }

  // Every member, listeners included.
  void show() {
    group_->tell_place();
    group_->post(shown(number_), number_);
  }
  bool await_shown(int member) { return group_->await(shown(number_), member, number_); }
  bool await_all_shown() {
    if (!await_others(shown(number_), number_)) return false;
    seen_all_ = number_;
    group_->keep_apart();
    return true;
  }
  // Every member of a staged exchange, when it has read what it wants.
  void end_staged() { group_->post(kReadOnce, number_); }

  // ---- the pipeline; callbacks get the number of the step in this operation and in all of them

  // `root`, or everybody if it is negative, publishes; everybody takes each publisher's share, its own
  // included: publish(k, step), take(k, step, member).
  template <class Publish, class Take>
  bool move(uint32_t steps, int root, Publish publish, Take take) {
    const int self = group_->rank();
    auto take_all = [&](uint32_t k) {
      for (int i = 0; i < group_->size(); ++i) {
        const int member = after(i);
        if (root >= 0 && member != root) continue;
        if (member != self && !group_->await(kPublished, member, steps_ + k + 1)) return false;
        take(k, steps_ + k, member);
      }
      free_step(k);
      return true;
    };
    if (!begin_steps(steps)) return false;
    for (uint32_t k = 0; k < steps + 1; ++k) {
      if (k < steps && (root < 0 || root == self) && !publish_step(k, publish)) return false;
      if (k >= 1 && !take_all(k - 1)) return false;
    }
    end_steps(steps);
    return true;
  }

  // Everybody publishes, and combines its part of everybody's input: combine(k, step).
  template <class Publish, class Combine>
  bool reduce(uint32_t steps, Publish publish, Combine combine) {
    if (!begin_steps(steps)) return false;
    for (uint32_t k = 0; k < steps + 1; ++k) {
      if (k < steps && !publish_step(k, publish)) return false;
      if (k < 1) continue;
      if (!combine_step(k - 1, combine)) return false;
      free_step(k - 1);
    }
    end_steps(steps);
    return true;
  }

  // The same, and everybody fetches the others' results: fetch(k, step, member). Three steps overlap: the
  // input of step k, the reduction of step k-1 and the results of step k-2.
  template <class Publish, class Combine, class Fetch>
  bool reduce_and_share(uint32_t steps, Publish publish, Combine combine, Fetch fetch) {
    auto combine_and_tell = [&](uint32_t k) {
      if (!combine_step(k, combine)) return false;
      group_->post(kReduced, steps_ + k + 1);
      return true;
    };
    auto fetch_all = [&](uint32_t k) {
      for (int i = 1; i < group_->size(); ++i) {
        if (!group_->await(kReduced, after(i), steps_ + k + 1)) return false;
        fetch(k, steps_ + k, after(i));
      }
      free_step(k);
      return true;
    };
    if (!begin_steps(steps)) return false;
    for (uint32_t k = 0; k < steps + 2; ++k) {
      if (k < steps && !publish_step(k, publish)) return false;
      if (k >= 1 && k - 1 < steps && !combine_and_tell(k - 1)) return false;
      if (k >= 2 && !fetch_all(k - 2)) return false;
    }
    end_steps(steps);
    return true;
  }

 private:
  int after(int distance) const { return (group_->rank() + distance) % group_->size(); }
  bool await_others(Counter counter, uint32_t value) {
    for (int i = 1; i < group_->size(); ++i) {
      if (!group_->await(counter, after(i), value)) return false;
    }
    return true;
  }

  bool own_staging() {
    if (staging_.group == group_) return true;
    if (Group* former = staging_.group.get()) {
      for (int member = 0; member < former->size(); ++member) {
        if (!former->await(kReadOnce, member, staging_.once) ||
            !former->await(kFreed, member, staging_.steps))
          return false;
      }
    }
    staging_ = {group_, staged_once_, steps_};
    return true;
  }

  bool begin_steps(uint32_t steps) {
    if (!own_staging()) return false;
    staging_.steps = steps_ + steps;
    return true;
  }
  template <class Publish>
  bool publish_step(uint32_t k, Publish& publish) {
    const uint32_t step = steps_ + k;
    if (!await_others(kFreed, step + 1 - kSlots)) return false;
    publish(k, step);
    group_->tell_place();
    group_->post(kPublished, step + 1);
    return true;
  }
  template <class Combine>
  bool combine_step(uint32_t k, Combine& combine) {
    if (!await_others(kPublished, steps_ + k + 1)) return false;
    combine(k, steps_ + k);
    return true;
  }
  void free_step(uint32_t k) { group_->post(kFreed, steps_ + k + 1); }
  void end_steps(uint32_t steps) {
    steps_ += steps;
    // Counters that this operation had no use for keep up, as they wrap around.
    group_->post(kPublished, steps_);
    group_->post(kReduced, steps_);
  }

  std::shared_ptr<Group> group_;
  StagingUse<Group>& staging_;
  uint32_t number_ = 0;       // of the last one-shot exchange
  uint32_t seen_all_ = 0;     // all members were seen to show this one
  uint32_t staged_once_ = 0;  // the last one that used staging memory
  uint32_t steps_ = 0;        // pipeline steps done
};

}  // namespace hvd
