// From the world that a caller describes to the parts of an engine.
#pragma once

#include "base/abort_signal.h"
#include "base/status.h"
#include "engine/engine.h"
#include "hvd.h"

namespace hvd {

// Takes over every descriptor of the world, also when it fails.
Status take_world(const hvd_world& world, const AbortSignal& abort, Engine::Parts* parts);

// Of the memory that so many ranks of a host share: the transport's, and the control connections'.
size_t host_memory_bytes(int ranks);
// And room for their tensors.
size_t host_memory_with_heap_bytes(int ranks);

}  // namespace hvd
