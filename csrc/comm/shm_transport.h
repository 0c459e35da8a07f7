// The shared-memory transport's own parts: who uses this rank's staging memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "comm/shm_segment.h"

namespace hvd {

using MemberFlags = std::vector<RankFlags*>;  // by rank within the communicator

// The staging memory of a rank serves one communicator at a time. Before another one writes to it, the
// members of the former must have read all that was left for them.
struct StagingUse {
  int slot = -1;  // of the communicator; -1: nobody's data is there
  std::shared_ptr<const MemberFlags> members;
  uint32_t once = 0;   // number of the last one-shot exchange written
  uint32_t steps = 0;  // pipeline steps written
};

std::unique_ptr<Communicator> make_shm_communicator(const ShmSegment& segment, StagingUse& staging, int slot,
                                                    std::vector<int> members, int rank,
                                                    const AbortSignal& abort);

}  // namespace hvd
