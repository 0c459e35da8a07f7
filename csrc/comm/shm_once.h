// The one-shot exchange of a shared-memory communicator: every member shows a few bytes, every member reads
// what it wants. Two buffers alternate, so that nobody has to wait until the others have read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/shm_places.h"

namespace hvd {

class ShmOnce {
 public:
  ShmOnce(const MemberFlags& flags, int rank, const Waiting& waiting, ShmPlaces& places)
      : flags_(flags), rank_(rank), waiting_(waiting), places_(places) {}

  static constexpr size_t kInlineBytes = sizeof(Flag::payload);

  // Starts the next exchange as one who shows something. False, here and below: the abort signal was raised.
  bool begin_writing();
  // ... as one who only listens; nobody may wait for this member.
  void begin_listening() { ++number_; }
  uint32_t number() const { return number_; }

  // Where this member writes up to kInlineBytes before show(), and where the others read it after await().
  std::byte* inline_bytes(int member) const { return line(member, number_).payload; }
  void show() {
    places_.tell();
    post(line(rank_, number_), number_);
  }
  bool await(int member) { return wait(line(member, number_), number_, waiting_); }
  bool await_all();
  // After reading from staging memory, on every member.
  void done_with_staging() { post(flags_[rank_]->once_done, number_); }

 private:
  Flag& line(int member, uint32_t number) const { return flags_[member]->once[number & 1]; }

  const MemberFlags& flags_;
  const int rank_;
  const Waiting waiting_;
  ShmPlaces& places_;
  uint32_t number_ = 0;
  uint32_t seen_all_ = 0;  // all members were seen to show up to this number
};

}  // namespace hvd
