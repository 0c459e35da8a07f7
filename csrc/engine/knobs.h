// The knobs' values where a caller gives none.
#pragma once

#include "hvd.h"

namespace hvd {

inline hvd_knobs default_knobs() {
  hvd_knobs knobs{};
  knobs.struct_size = sizeof knobs;
  knobs.cache_capacity = 1024;
  knobs.fusion_threshold = 128 << 20;
  knobs.stall_check_time_seconds = 60.0;
  knobs.peer_timeout_seconds = 3.0;
  knobs.host_timeout_seconds = 10.0;
  knobs.log_level = HVD_LOG_WARNING;
  knobs.timeline_buffer = 8 << 20;
  knobs.stall_stacks = 1;
  return knobs;
}

}  // namespace hvd
