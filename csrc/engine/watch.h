// Notices that a peer died or fell silent, and spreads aborts. Rank 0 watches everyone, everyone watches rank
// 0.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/abort_signal.h"
#include "base/event.h"
#include "engine/peer_process.h"
#include "wire/channel.h"
#include "wire/messages.h"

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
    wire::Clock last{};  // of the last kClock that came: when it was sent and when it arrived
  };

  // Seconds of silence after which a peer is given up. Those elsewhere are given more, so that a link may
  // fail for some seconds: their death closes the connection, and is noticed at once all the same.
  struct Timeouts {
    double here = 3.0, elsewhere = 10.0;
  };

  // What else the connections carry. Called on the watch's thread, so none may take long.
  struct Hooks {
    std::function<wire::Progress()> progress;                        // to be sent with every heartbeat
    std::function<void(int rank, wire::Message& message)> received;  // kProgress, kDump, kStacks
    // How far the peer's clock is ahead, and how long a message takes to it and back, in nanoseconds.
    std::function<void(int rank, int64_t offset, uint64_t round_trip)> clock;
  };

  // Raises `abort` when a watched peer dies or has been silent for too long, and tells all watched peers when
  // `abort` is raised by anyone.
  Watch(std::vector<Watched> watched, Timeouts timeouts, AbortSignal* abort, Hooks hooks = {});
  ~Watch();
  // Apart from making it: a hook may need what owns this to know where it is.
  void start();

  // Sends a frame to a rank, from any thread; nothing happens if that is not watched or gone.
  void post(int rank, std::vector<uint8_t> frame);

  // From now on a closed connection is the normal end and makes no noise.
  void expect_closing() { closing_.store(true, std::memory_order_release); }

 private:
  void run();
  void tick();
  void listen(Watched& peer);
  void received(Watched& peer, wire::Message& message);
  void send_posted();
  void lost(Watched& peer);
  void spread_abort();

  std::vector<Watched> watched_;
  std::chrono::duration<double> limit_here_, limit_elsewhere_, interval_;
  std::chrono::steady_clock::time_point last_tick_;
  AbortSignal* abort_;
  const Hooks hooks_;
  std::mutex posted_mutex_;
  std::vector<std::pair<int, std::vector<uint8_t>>> posted_;
  Event wake_;  // something was posted
  Event stop_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvd
