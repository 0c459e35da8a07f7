// What a transport has moved between processes by sockets or MPI, for any thread to read.
#pragma once

#include <atomic>
#include <cstdint>

namespace hvd {

struct Traffic {
  std::atomic<uint64_t> sent{0}, received{0};  // bytes

  void add_sent(uint64_t bytes) { sent.fetch_add(bytes, std::memory_order_relaxed); }
  void add_received(uint64_t bytes) { received.fetch_add(bytes, std::memory_order_relaxed); }
};

}  // namespace hvd
