#include "engine/average.h"

#include <algorithm>

#include "comm/pieces.h"
#include "engine/task.h"
#include "kernels/kernels.h"

namespace hvd {
namespace {

// Of a block in its wide form, which is to stay in the caches.
constexpr size_t kBlockBytes = 2 << 20;

Status out_of_memory() { return Status::unknown("Out of memory for the average of integers."); }

class Average {
 public:
  Average(DataType type, int n, double factor)
      : type_(type), n_(n), factor_(factor), wide_(kernels::wide_for(type, n)) {}

  Reduction sum() const { return {wide_.type, ReduceOp::kSum, 1.0}; }
  size_t elements(const Pieces& pieces) const { return total_bytes(pieces) / size_of(type_); }
  size_t wide_bytes(size_t count) const { return count * wide_.bytes(); }

  void widen(Cursor& from, std::byte* to, size_t count) const {
    each_run(from, count, [&](std::byte* values, size_t run) {
      kernels::widen(type_, n_, to, values, run);
      to += wide_bytes(run);
    });
  }
  void divide(const std::byte* sums, Cursor& to, size_t count) const {
    each_run(to, count, [&](std::byte* results, size_t run) {
      kernels::divide(type_, n_, factor_, results, sums, run);
      sums += wide_bytes(run);
    });
  }

 private:
  template <class Body>
  void each_run(Cursor& place, size_t count, Body body) const {
    while (count > 0) {
      const size_t run = std::min(place.run() / size_of(type_), count);
      body(place.here(), run);
      place.advance(run * size_of(type_));
      count -= run;
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
  const size_t block = std::min(total, kBlockBytes / average.wide_bytes(1));
  Memory memory = allocate_memory(average.wide_bytes(block));
  if (!memory) return out_of_memory();
  auto* wide = static_cast<std::byte*>(memory.get());
  Cursor input(in), output(out);
  for (size_t done = 0; done < total; done += block) {
    const size_t count = std::min(block, total - done);
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
  const size_t block = std::max<size_t>(1, kBlockBytes / average.wide_bytes(in.size()));
  Memory memory = allocate_memory(average.wide_bytes(std::min(block, largest) * in.size()));
  if (!memory) return out_of_memory();
  Cursor output(out);
  for (size_t done = 0; done < largest; done += block) {
    auto* wide = static_cast<std::byte*>(memory.get());
    std::vector<Pieces> shares;
    for (size_t r = 0; r < in.size(); ++r) {
      const size_t count = std::min(block, left[r]);
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
