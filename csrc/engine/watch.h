// Notices that a peer died or fell silent, and spreads aborts. Rank 0 watches everyone, everyone watches rank
// 0.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/event.h"
#include "engine/peer_process.h"
#include "wire/channel.h"

namespace hvd {

class Watch {
 public:
  struct Watched {
    PeerProcess peer;
    wire::Channel channel;
    int control = -1;  // another connection to it, not used here: what arrives there is a sign of life, too
    std::chrono::steady_clock::time_point heard{};
    bool met = false;  // it has said something
    bool gone = false;
  };

  // Seconds of silence after which a peer is given up. Those elsewhere are given more, so that a link may
  // fail for some seconds: their death closes the connection, and is noticed at once all the same.
  struct Timeouts {
    double here = 3.0, elsewhere = 10.0;
  };

  // Raises `abort` when a watched peer dies or has been silent for too long, and tells all watched peers when
  // `abort` is raised by anyone.
  Watch(std::vector<Watched> watched, Timeouts timeouts, AbortSignal* abort);
  ~Watch();

  // From now on a closed connection is the normal end and makes no noise.
  void expect_closing() { closing_.store(true, std::memory_order_release); }

 private:
  void run();
  void tick();
  void listen(Watched& peer);
  void lost(Watched& peer);
  void spread_abort();

  std::vector<Watched> watched_;
  std::chrono::duration<double> limit_here_, limit_elsewhere_, interval_;
  std::chrono::steady_clock::time_point last_tick_;
  AbortSignal* abort_;
  Event stop_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvd
