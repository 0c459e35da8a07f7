// Notices that a peer died or fell silent, and spreads aborts. Each rank watches the one above it in the tree
// and those right below, which watch it. What else ranks and rank 0 tell each other goes the same way.
#pragma once

#include <algorithm>
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
#include "engine/progress_below.h"
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
    // Until a rank that is silent has been given up, wherever it is; but no longer than a minute, as timeouts
    // may be so long because nobody is to be given up.
    std::chrono::milliseconds patience() const {
      return std::chrono::milliseconds(
          static_cast<int64_t>(1000 * std::min(std::max(here, elsewhere), 60.0)));
    }
  };

  // What else the connections carry. Called on the watch's thread, so none may take long.
  struct Hooks {
    std::function<wire::Progress()> own_progress;  // to be sent with every heartbeat; not of rank 0
    std::function<void(int rank, const wire::Progress& progress)> progress;  // rank 0, of all others
    std::function<void(const wire::ClockOffset& root)> clock;                // others than rank 0
    std::function<void(int rank, const wire::Message& message)> received;    // what was posted: for or of it
  };

  // `parents`: the rank above each. Raises `abort` when a watched peer dies or has been silent for too long,
  // and tells all watched peers when `abort` is raised by anyone.
  Watch(int rank, const std::vector<int>& parents, std::vector<Watched> watched, Timeouts timeouts,
        AbortSignal* abort, Hooks hooks = {});
  ~Watch();
  // Apart from making it: a hook may need what owns this to know where it is.
  void start();

  // Sends a frame on its way to a rank, from any thread: rank 0's to any, others' to rank 0. Nothing happens
  // if the next one on the way is gone.
  void post(int rank, std::vector<uint8_t> frame);

  // From now on a closed connection is the normal end and makes no noise.
  void expect_closing() { closing_.store(true, std::memory_order_release); }

 private:
  void run();
  void tick();
  void listen(Watched& peer);
  void received(Watched& peer, wire::Message& message);
  bool relay(const Watched& from, const uint8_t* data, size_t size);
  void send_towards(int rank, const std::vector<uint8_t>& frame);
  void send_posted();
  void send_progress(Watched& above);
  void lost(Watched& peer);
  void raise(Status reason);
  void spread(const Status& reason);
  void flush_last();
  bool is_above(const Watched& peer) const { return rank_ != 0 && peer.peer.rank() == above_; }

  const int rank_, above_;
  std::vector<int> next_hops_;  // [rank]
  std::vector<Watched> watched_;
  std::chrono::duration<double> limit_here_, limit_elsewhere_, interval_;
  std::chrono::steady_clock::time_point last_tick_;
  AbortSignal* abort_;
  const Hooks hooks_;
  bool spread_ = false;     // all have been told of the abort
  wire::ClockOffset root_;  // of rank 0's clock
  ProgressBelow below_;
  std::mutex posted_mutex_;
  std::vector<std::pair<int, std::vector<uint8_t>>> posted_;
  Event wake_;  // something was posted
  Event stop_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace hvd
