#include "engine/adasum.h"

#include <algorithm>

#include "engine/task.h"
#include "kernels/kernels.h"

namespace hvd {
namespace {

// The scalar products need the whole vectors, the combination needs them again: exchanging twice in chunks
// keeps the memory bounded, whatever the tensor's size.
constexpr size_t kChunk = 4 << 20;

// Exchanges `data` with the partner chunk by chunk and calls visit(mine, lower, higher, count) for each,
// with the values of the lower rank first.
template <class Visit>
Status each_chunk(Communicator& communicator, int partner, DataType type, void* data, size_t bytes,
                  void* theirs, Visit visit) {
  const bool first = communicator.rank() < partner;
  std::vector<Pieces> in(static_cast<size_t>(communicator.size())), out(in.size());
  for (size_t at = 0; at < bytes; at += kChunk) {
    void* const mine = static_cast<char*>(data) + at;
    const size_t length = std::min(kChunk, bytes - at);
    in[static_cast<size_t>(partner)] = {{mine, length}};
    out[static_cast<size_t>(partner)] = {{theirs, length}};
    Status status = communicator.alltoall(in, out);
    if (!status.ok()) return status;
    visit(mine, first ? mine : theirs, first ? theirs : mine, length / size_of(type));
  }
  return {};
}

double weight(double dot, double norm) { return norm == 0.0 ? 1.0 : 1.0 - dot / (2.0 * norm); }

}  // namespace

Status adasum_in_place(Communicator& communicator, DataType type, void* data, size_t bytes) {
  Memory theirs = allocate_memory(std::min(bytes, kChunk));
  if (!theirs) return Status::unknown("Out of memory for the Adasum buffer.");
  for (int distance = 1; distance < communicator.size(); distance *= 2) {
    const int partner = communicator.rank() ^ distance;
    double dots[3] = {0, 0, 0};
    Status status = each_chunk(communicator, partner, type, data, bytes, theirs.get(),
                               [&](void*, const void* lower, const void* higher, size_t count) {
                                 kernels::dots(type, lower, higher, count, dots);
                               });
    if (!status.ok()) return status;
    const double weight_lower = weight(dots[0], dots[1]);
    const double weight_higher = weight(dots[0], dots[2]);
    status = each_chunk(communicator, partner, type, data, bytes, theirs.get(),
                        [&](void* mine, const void* lower, const void* higher, size_t count) {
                          kernels::combine(type, mine, lower, higher, count, weight_lower, weight_higher);
                        });
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace hvd
