// The knobs of engines in tests.
#pragma once

#include "engine/knobs.h"

inline hvd_knobs test_knobs() {
  hvd_knobs knobs = hvd::default_knobs();
  knobs.stall_check_time_seconds = 0;
  knobs.peer_timeout_seconds = knobs.host_timeout_seconds =
      60;  // other programs may keep a thread from running for seconds
  knobs.log_level = HVD_LOG_FATAL;
  return knobs;
}
