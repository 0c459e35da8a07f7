#include "engine/adasum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/task.h"
#include "kernels/kernels.h"

namespace hvd {
namespace {

constexpr size_t kChunk = 4 << 20;  // what is exchanged at a time; bounds the memory

using Dots = std::array<double, 3>;

// Elements of the vector.
struct Part {
  size_t first, count;
  Part half(bool second) const {
    const size_t larger = count - count / 2;
    return second ? Part{first + larger, count / 2} : Part{first, larger};
  }
};

// What a rank works on after the steps before `distance`.
Part part_of(int rank, int distance, Part whole) {
  for (int before = 1; before < distance; before *= 2) whole = whole.half((rank & before) != 0);
  return whole;
}

double weight(double dot, double norm) { return norm == 0.0 ? 1.0 : 1.0 - dot / (2.0 * norm); }

// One step with the partner at `distance`: of the part that both have, each combines one half. The partner's
// values of it take the place of the half that is given away, but for the last chunk, which stays in the
// buffer: that half may be one element shorter.
class Step {
 public:
  Step(Communicator& communicator, DataType type, void* data, size_t count, int distance, void* buffer)
      : communicator_(communicator),
        type_(type),
        element_(size_of(type)),
        data_(static_cast<std::byte*>(data)),
        buffer_(static_cast<std::byte*>(buffer)),
        distance_(distance),
        second_((communicator.rank() & distance) != 0) {
    const Part part = part_of(communicator.rank(), distance, {0, count});
    mine_ = part.half(second_);
    given_ = part.half(!second_);
    // Rank 0 has the largest parts; all ranks take the same number of turns.
    const size_t longest = part_of(0, 2 * distance, {0, count}).count;
    turns_ = (longest + per_turn() - 1) / per_turn();
  }

  Status run() {
    Dots dots{};
    for (size_t turn = 0; turn < turns_; ++turn) {
      Status status = exchange(turn);
      if (!status.ok()) return status;
      const Part now = chunk(mine_, turn);
      kernels::dots(type_, lower(at(now), buffer_), higher(at(now), buffer_), now.count, dots.data());
      if (turn + 1 < turns_) std::memcpy(at(chunk(given_, turn)), buffer_, now.count * element_);
    }
    Status status = add_up(dots);
    if (!status.ok()) return status;
    for (size_t turn = 0; turn < turns_; ++turn) {
      const Part now = chunk(mine_, turn);
      std::byte* const theirs = turn + 1 < turns_ ? at(chunk(given_, turn)) : buffer_;
      kernels::combine(type_, at(now), lower(at(now), theirs), higher(at(now), theirs), now.count,
                       weight(dots[0], dots[1]), weight(dots[0], dots[2]));
    }
    return {};
  }

 private:
  size_t per_turn() const { return kChunk / element_; }
  Part chunk(const Part& part, size_t turn) const {
    const size_t skipped = std::min(part.count, turn * per_turn());
    return {part.first + skipped, std::min(per_turn(), part.count - skipped)};
  }
  std::byte* at(const Part& part) const { return data_ + part.first * element_; }
  // The values of the lower rank come first.
  std::byte* lower(std::byte* mine, std::byte* theirs) const { return second_ ? theirs : mine; }
  std::byte* higher(std::byte* mine, std::byte* theirs) const { return second_ ? mine : theirs; }

  Status exchange(size_t turn) {
    const auto partner = static_cast<size_t>(communicator_.rank() ^ distance_);
    std::vector<Pieces> in(static_cast<size_t>(communicator_.size())), out(in.size());
    const Part given = chunk(given_, turn);
    in[partner] = {{at(given), given.count * element_}};
    out[partner] = {{buffer_, chunk(mine_, turn).count * element_}};
    return communicator_.alltoall(in, out);
  }

  // Over the ranks whose parts make up the whole vectors of this step, in their order.
  Status add_up(Dots& dots) {
    std::vector<Pieces> in(static_cast<size_t>(communicator_.size())), out(in.size());
    std::vector<Dots> all(static_cast<size_t>(2 * distance_));
    Dots own = dots;
    const auto first = static_cast<size_t>(communicator_.rank() / (2 * distance_) * 2 * distance_);
    for (size_t i = 0; i < all.size(); ++i) {
      in[first + i] = {{own.data(), sizeof own}};
      out[first + i] = {{all[i].data(), sizeof own}};
    }
    Status status = communicator_.alltoall(in, out);
    dots = {};
    for (const Dots& each : all)
      for (size_t i = 0; i < dots.size(); ++i) dots[i] += each[i];
    return status;
  }

  Communicator& communicator_;
  const DataType type_;
  const size_t element_;
  std::byte* const data_;
  std::byte* const buffer_;
  const int distance_;
  const bool second_;  // the partner is the lower rank, and has the first half
  Part mine_{}, given_{};
  size_t turns_ = 0;
};

}  // namespace

Status adasum_in_place(Communicator& communicator, DataType type, void* data, size_t bytes) {
  const size_t element = size_of(type), count = bytes / element;
  const int size = communicator.size();
  if (count == 0 || size == 1) return {};
  Memory buffer = allocate_memory(std::min(bytes, kChunk));
  if (!buffer) return Status::unknown("Out of memory for the Adasum buffer.");
  for (int distance = 1; distance < size; distance *= 2) {
    Status status = Step(communicator, type, data, count, distance, buffer.get()).run();
    if (!status.ok()) return status;
  }
  std::vector<Pieces> parts;
  for (int rank = 0; rank < size; ++rank) {
    const Part part = part_of(rank, size, {0, count});
    parts.push_back({{static_cast<std::byte*>(data) + part.first * element, part.count * element}});
  }
  return communicator.allgather(parts[static_cast<size_t>(communicator.rank())], parts);
}

}  // namespace hvd
