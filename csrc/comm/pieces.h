// Reading, writing and reducing chunks of a list of pieces.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/communicator.h"

namespace hvd {

// A place in the concatenation of a list of pieces. Moving costs the pieces passed, so chunks taken roughly
// in order never rescan the list. The pieces must outlive the cursor.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(const Pieces& pieces, size_t offset = 0) : Cursor(pieces.data(), pieces.size(), offset) {}
  Cursor(const Piece* pieces, size_t count, size_t offset = 0) : piece_(pieces), left_(count) {
    settle();
    seek(offset);
  }

  void seek(size_t offset);
  void advance(size_t bytes);
  // Contiguous bytes from here on; 0 only at the end.
  size_t contiguous() const { return left_ == 0 ? 0 : piece_->bytes - within_; }
  std::byte* here() const { return static_cast<std::byte*>(piece_->data) + within_; }
  // What will be read from there soon; nullptr at the end.
  const std::byte* look(size_t offset) {
    seek(offset);
    return left_ == 0 ? nullptr : here();
  }

 private:
  void settle();  // steps over pieces that are used up or empty

  const Piece* piece_ = nullptr;
  size_t left_ = 0;    // pieces from piece_ on
  size_t start_ = 0;   // offset of piece_ in the concatenation
  size_t within_ = 0;  // place in piece_
};

// The next `bytes`, as pieces of their own; the cursor moves along.
Pieces take(Cursor& place, size_t bytes);
void append(Pieces& list, const Pieces& more);

// Each moves the cursors by `bytes`. `ahead`: see kernels.h.
void gather(Cursor& from, void* to, size_t bytes);
void scatter(const void* from, Cursor& to, size_t bytes, const std::byte* ahead = nullptr);
// Where both are at the same memory nothing is done.
void copy(Cursor& from, Cursor& to, size_t bytes);
void copy(const Pieces& from, const Pieces& to);

// Combines the next `bytes` of this rank's input (sources[own] is not looked at) with the other ranks', which
// lie in one piece each, into `to`, which may be at the memory of `own_input`. The results also take the
// place of the input sources[replaced] unless that is negative. The pointers in `sources` are used up.
void reduce(const Reduction& reduction, Cursor& own_input, int own, std::vector<std::byte*>& sources,
            int replaced, Cursor& to, size_t bytes, const std::byte* ahead = nullptr);

}  // namespace hvd
