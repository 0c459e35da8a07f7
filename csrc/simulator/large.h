// The time of an allreduce of one tensor, from its release on. Lanes do the same at the same time, so one of
// them is simulated, with its part of each host's port.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulator/machine.h"

namespace hvd::simulator {

struct Large {
  double seconds = 0;
  uint64_t messages = 0, bytes = 0;  // that a rank sends to other hosts
};

Large allreduce_of(int hosts, int local, size_t bytes, Costs costs);

}  // namespace hvd::simulator
