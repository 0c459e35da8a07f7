// What this machine could do at best: the yardsticks for what a timeline shows.
#pragma once

#include <cstdint>

namespace hvd {

// Bytes a second that this process copies from memory to memory, while others may do the same. Measured for
// some 20 ms at the first call. `processes` do so on this machine: they share its caches, and its memory.
uint64_t copy_speed(int processes);
// Bits a second of the fastest network interface, as it says itself; 0 if none does.
uint64_t link_speed();

}  // namespace hvd
