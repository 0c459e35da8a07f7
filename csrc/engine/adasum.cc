#include "engine/adasum.h"

#include <algorithm>

#include "engine/task.h"
#include "kernels/kernels.h"

namespace hvd {
namespace {

// The scalar products need the whole vectors, the combination needs them again: exchanging twice in chunks
// keeps the memory bounded, whatever the tensor's size.
constexpr size_t kChunk = 4 << 20;

Status exchange(Communicator& communicator, int partner, void* mine, void* theirs, size_t bytes) {
  std::vector<Pieces> in(static_cast<size_t>(communicator.size())), out(in.size());
  in[static_cast<size_t>(partner)] = {{mine, bytes}};
  out[static_cast<size_t>(partner)] = {{theirs, bytes}};
  return communicator.alltoall(in, out);
}

double weight(double dot, double norm) { return norm == 0.0 ? 1.0 : 1.0 - dot / (2.0 * norm); }

}  // namespace

Status adasum_in_place(Communicator& communicator, DataType type, void* data, size_t bytes) {
  Memory theirs = allocate_memory(std::min(bytes, kChunk));
  if (!theirs) return Status::unknown("Out of memory for the Adasum buffer.");
  auto* bytes_of = static_cast<char*>(data);
  for (int distance = 1; distance < communicator.size(); distance *= 2) {
    const int partner = communicator.rank() ^ distance;
    const bool first = communicator.rank() < partner;
    double dots[3] = {0, 0, 0};
    for (size_t at = 0; at < bytes; at += kChunk) {
      size_t length = std::min(kChunk, bytes - at);
      Status status = exchange(communicator, partner, bytes_of + at, theirs.get(), length);
      if (!status.ok()) return status;
      const void* a = first ? bytes_of + at : theirs.get();
      const void* b = first ? theirs.get() : bytes_of + at;
      kernels::dots(type, a, b, length / size_of(type), dots);
    }
    const double weight_a = weight(dots[0], dots[1]);
    const double weight_b = weight(dots[0], dots[2]);
    for (size_t at = 0; at < bytes; at += kChunk) {
      size_t length = std::min(kChunk, bytes - at);
      Status status = exchange(communicator, partner, bytes_of + at, theirs.get(), length);
      if (!status.ok()) return status;
      const void* a = first ? bytes_of + at : theirs.get();
      const void* b = first ? theirs.get() : bytes_of + at;
      kernels::combine(type, bytes_of + at, a, b, length / size_of(type), weight_a, weight_b);
    }
  }
  return {};
}

}  // namespace hvd
