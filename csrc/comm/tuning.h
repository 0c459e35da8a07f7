// What may be changed while a job runs: how data is cut, and what runs together. Nothing here decides which
// values are combined or in which order, so results are the same bits whatever is set; topology, the levels
// of a hierarchy and compression are not to be added.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace hvd {

// All ranks must have the same values for the same operation.
struct Tuning {
  // Of rank 0 alone, which decides what runs when:
  int64_t fusion_threshold = 128 << 20;  // bytes of an operation that tensors are fused into
  int64_t ahead = 2;  // operations under way before what is ready is held back, to be fused
  // Of shared memory:
  int64_t once_total = 128 << 10;  // an allreduce of less, over all ranks, is read by all at once
  int64_t slot_parts = 1;          // into which the pipeline's chunks are cut
  // Of connections and MPI messages:
  int64_t whole_bytes = 16 << 10;  // an allreduce of less is sent whole to all
  int64_t mesh_chunk = 256 << 10;  // what is combined, or handed on, at a time
  // Of several hosts with several ranks:
  int64_t block_bytes = 8 << 20;  // exchanged between the hosts at a time
};

// Who looks at a value.
enum TunedPart : unsigned { kTunesRelease = 1, kTunesShm = 2, kTunesMesh = 4, kTunesHosts = 8 };

constexpr size_t kMostChoices = 4;
struct Tunable {
  const char* name;
  int64_t Tuning::* value;
  unsigned part;
  std::array<int64_t, kMostChoices> choices;  // ascending, the default among them; 0: no more
  size_t count() const {
    return kMostChoices - static_cast<size_t>(std::count(choices.begin(), choices.end(), 0));
  }
};

// Those with most influence first.
inline constexpr Tunable kTunables[] = {
    {"whole_bytes", &Tuning::whole_bytes, kTunesMesh, {4 << 10, 16 << 10, 64 << 10, 256 << 10}},
    {"mesh_chunk", &Tuning::mesh_chunk, kTunesMesh, {64 << 10, 256 << 10, 1 << 20}},
    {"block_bytes", &Tuning::block_bytes, kTunesHosts, {2 << 20, 8 << 20, 32 << 20}},
    {"once_total", &Tuning::once_total, kTunesShm, {32 << 10, 128 << 10, 512 << 10}},
    {"slot_parts", &Tuning::slot_parts, kTunesShm, {1, 2, 4}},
    {"ahead", &Tuning::ahead, kTunesRelease, {1, 2, 4}},
    {"fusion_threshold", &Tuning::fusion_threshold, kTunesRelease, {1 << 20, 4 << 20, 16 << 20, 128 << 20}},
};
constexpr size_t kTunableCount = std::size(kTunables);

// Which of its choices each has.
using Choices = std::array<uint8_t, kTunableCount>;

}  // namespace hvd
