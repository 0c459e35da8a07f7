#include "engine/average.h"

#include <algorithm>

#include "comm/pieces.h"
#include "engine/task.h"
#include "kernels/kernels.h"

namespace hvd {
namespace {

// Of a chunk in its wide form, which is to stay in the caches.
constexpr size_t kChunkBytes = 2 << 20;

Status out_of_memory() { return Status::unknown("Out of memory for the average of integers."); }

class Average {
 public:
  Average(DataType type, int n, double factor)
      : type_(type), n_(n), factor_(factor), wide_(kernels::wide_for(type, n)) {}

  Reduction sum() const { return {wide_.type, ReduceOp::kSum, 1.0}; }
  size_t elements(const Pieces& pieces) const { return total_bytes(pieces) / size_of(type_); }
  size_t wide_bytes(size_t count) const { return count * wide_.bytes(); }

  void widen(Cursor& from, std::byte* to, size_t count) const {
    each_piece(from, count, [&](std::byte* values, size_t length) {
      kernels::widen(type_, n_, to, values, length);
      to += wide_bytes(length);
    });
  }
  void divide(const std::byte* sums, Cursor& to, size_t count) const {
    each_piece(to, count, [&](std::byte* results, size_t length) {
      kernels::divide(type_, n_, factor_, results, sums, length);
      sums += wide_bytes(length);
    });
  }

 private:
  template <class Body>
  void each_piece(Cursor& place, size_t count, Body body) const {
    while (count > 0) {
      const size_t length = std::min(place.contiguous() / size_of(type_), count);
      body(place.here(), length);
      place.advance(length * size_of(type_));
      count -= length;
    }
  }

  const DataType type_;
  const int n_;
  const double factor_;
  const kernels::Wide wide_;
};

}  // namespace

Status average_integers(Communicator& communicator, DataType type, double factor, const Pieces& in,
                        const Pieces& out) {
  const Average average(type, communicator.size(), factor);
  const size_t total = average.elements(in);
  const size_t chunk = std::min(total, kChunkBytes / average.wide_bytes(1));
  Memory memory = allocate_memory(average.wide_bytes(chunk));
  if (!memory) return out_of_memory();
  auto* wide = static_cast<std::byte*>(memory.get());
  Cursor input(in), output(out);
  for (size_t done = 0; done < total; done += chunk) {
    const size_t count = std::min(chunk, total - done);
    average.widen(input, wide, count);
    const Pieces sums = {{wide, average.wide_bytes(count)}};
    Status status = communicator.allreduce(average.sum(), sums, sums);
    if (!status.ok()) return status;
    average.divide(wide, output, count);
  }
  return {};
}

Status average_integer_shares(Communicator& communicator, DataType type, double factor,
                              const std::vector<Pieces>& in, const Pieces& out) {
  const Average average(type, communicator.size(), factor);
  const auto own = static_cast<size_t>(communicator.rank());
  std::vector<size_t> left;
  std::vector<Cursor> inputs;
  for (const Pieces& share : in) {
    left.push_back(average.elements(share));
    inputs.emplace_back(share);
  }
  const size_t largest = *std::max_element(left.begin(), left.end());
  const size_t chunk = std::max<size_t>(1, kChunkBytes / average.wide_bytes(in.size()));
  Memory memory = allocate_memory(average.wide_bytes(std::min(chunk, largest) * in.size()));
  if (!memory) return out_of_memory();
  Cursor output(out);
  for (size_t done = 0; done < largest; done += chunk) {
    auto* wide = static_cast<std::byte*>(memory.get());
    std::vector<Pieces> shares;
    for (size_t r = 0; r < in.size(); ++r) {
      const size_t count = std::min(chunk, left[r]);
      average.widen(inputs[r], wide, count);
      shares.push_back({{wide, average.wide_bytes(count)}});
      wide += average.wide_bytes(count);
      left[r] -= count;
    }
    Status status = communicator.reducescatter(average.sum(), shares, shares[own]);
    if (!status.ok()) return status;
    average.divide(static_cast<const std::byte*>(shares[own][0].data), output,
                   shares[own][0].bytes / average.wide_bytes(1));
  }
  return {};
}

}  // namespace hvd
