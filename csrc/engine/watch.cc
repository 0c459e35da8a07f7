#include "engine/watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "base/thread.h"
#include "wire/messages.h"

namespace hvd {

using Clock = std::chrono::steady_clock;

namespace {

// A process of this host that is not stopped, but silent, gets no processor: there are too many others. One
// elsewhere that has never been heard of may still be starting. They are given so many times as long.
constexpr int kPatience = 10;

// When something came last on a TCP connection; long ago on any other. The kernel tells, so it does not
// matter when it is read.
Clock::time_point last_arrival(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  constexpr socklen_t kNeeded = offsetof(tcp_info, tcpi_last_data_recv) + sizeof info.tcpi_last_data_recv;
  if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < kNeeded) return {};  // an emulated kernel tells less, and 0 would mean now
  return Clock::now() - std::chrono::milliseconds(info.tcpi_last_data_recv);
}

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

// Six heartbeats in the shorter time allowed; a peer is given up at three quarters of its own, so that
// noticing it, which may take one more interval, stays within that.
Watch::Watch(std::vector<Watched> watched, Timeouts timeouts, AbortSignal* abort, Hooks hooks)
    : watched_(std::move(watched)),
      limit_here_(timeouts.here * 3 / 4),
      limit_elsewhere_(timeouts.elsewhere * 3 / 4),
      interval_(std::min(timeouts.here, timeouts.elsewhere) / 6),
      last_tick_(Clock::now()),
      abort_(abort),
      hooks_(std::move(hooks)) {
  for (Watched& peer : watched_) peer.heard = last_tick_;
}

void Watch::start() {
  thread_ = start_thread("hvd-watch", [this] { run(); });
}

Watch::~Watch() {
  stop_.set();
  if (thread_.joinable()) thread_.join();
}

void Watch::run() {
  bool spread = false;
  std::vector<pollfd> polled;
  Clock::time_point next_tick = Clock::now();
  for (;;) {
    if (abort_->raised() && !spread) {
      spread_abort();
      spread = true;
    }
    if (Clock::now() >= next_tick) {
      tick();
      next_tick = Clock::now() + std::chrono::duration_cast<Clock::duration>(interval_);
    }
    polled.assign({{stop_.fd(), POLLIN, 0}, {spread ? -1 : abort_->fd(), POLLIN, 0}});
    const size_t first = polled.size() + 1;
    polled.push_back({wake_.fd(), POLLIN, 0});
    for (Watched& peer : watched_) {
      auto wanted = static_cast<short>(POLLIN | (peer.channel.has_unsent() ? POLLOUT : 0));
      polled.push_back({peer.gone ? -1 : peer.channel.fd(), wanted, 0});
      polled.push_back({peer.gone ? -1 : peer.peer.pidfd(), POLLIN, 0});
    }
    auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next_tick - Clock::now()).count() + 1;
    if (poll(polled.data(), polled.size(), static_cast<int>(wait > 0 ? wait : 0)) < 0) continue;
    if (polled[0].revents != 0) {
      if (abort_->raised() && !spread) spread_abort();
      return;
    }
    if (polled[first - 1].revents != 0) send_posted();
    for (size_t i = 0; i < watched_.size(); ++i) {
      Watched& peer = watched_[i];
      if (peer.gone) continue;
      if (polled[first + 2 * i].revents & POLLOUT) peer.channel.flush();
      if (polled[first + 2 * i].revents & ~POLLOUT) listen(peer);
      if (!peer.gone && polled[first + 2 * i + 1].revents != 0) {
        listen(peer);  // its last words, if any, count first
        if (!peer.gone) lost(peer);
      }
    }
  }
}

void Watch::tick() {
  // If this process itself was stopped or starved, the peers' silence is not theirs.
  Clock::time_point now = Clock::now();
  bool was_asleep = now - last_tick_ > 2 * interval_;
  last_tick_ = now;
  std::vector<uint8_t> progress;
  if (hooks_.progress) progress = wire::encode_progress(hooks_.progress());
  for (Watched& peer : watched_) {
    if (peer.gone) continue;
    listen(peer);
    if (peer.gone) continue;
    if (!peer.channel.has_unsent()) {
      peer.channel.send(wire::encode_clock({nanoseconds(), peer.last.sent, peer.last.arrived}));
      if (!progress.empty()) peer.channel.send(progress);
    }
    peer.heard = was_asleep ? now : std::max(peer.heard, last_arrival(peer.control));
    std::chrono::duration<double> silence = now - peer.heard;
    const bool here = peer.peer.pidfd() >= 0;
    if (silence < (here ? limit_here_ : limit_elsewhere_)) continue;
    const bool excused = here ? peer.peer.runs() : !peer.met;
    if (excused && silence < kPatience * limit_here_) continue;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", silence.count());
    abort_->raise(Status::unknown(peer.peer.name() + " has been silent for " + seconds + " s" +
                                  peer.peer.describe_state() + ".")
                      .blame(peer.peer.rank(), true));
  }
}

void Watch::listen(Watched& peer) {
  const uint8_t* data = nullptr;
  size_t size = 0;
  for (;;) {
    switch (peer.channel.receive(&data, &size)) {
      case wire::Channel::Received::kNothing:
        return;
      case wire::Channel::Received::kClosed:
        return lost(peer);
      case wire::Channel::Received::kForged:
        abort_->raise(wire::forged("the liveness connection to " + peer.peer.name()));
        // It may still hear the reason.
        peer.channel.send(wire::encode_abort(abort_->reason()));
        peer.gone = true;
        return;
      case wire::Channel::Received::kFrame: {
        peer.heard = Clock::now();
        peer.met = true;
        wire::Message message;
        if (!wire::decode(data, size, &message)) return lost(peer);
        if (message.type == wire::MessageType::kAbort)
          abort_->raise(Status::unknown(message.text).blame(message.culprit, message.silent));
        received(peer, message);
      }
    }
  }
}

// The four times of two messages that crossed: what the clocks differ by, if both took equally long.
void Watch::received(Watched& peer, wire::Message& message) {
  switch (message.type) {
    case wire::MessageType::kClock: {
      const int64_t now = nanoseconds();
      const wire::Clock& clock = message.clock;
      if (clock.arrived != 0 && hooks_.clock) {
        const int64_t there = clock.arrived - clock.last, back = clock.sent - now;
        const int64_t round_trip = (now - clock.last) - (clock.sent - clock.arrived);
        if (round_trip >= 0)
          hooks_.clock(peer.peer.rank(), (there + back) / 2, static_cast<uint64_t>(round_trip));
      }
      peer.last.sent = clock.sent;
      peer.last.arrived = now;
      return;
    }
    case wire::MessageType::kProgress:
    case wire::MessageType::kDump:
    case wire::MessageType::kStacks:
      if (hooks_.received) hooks_.received(peer.peer.rank(), message);
      return;
    default:
      return;
  }
}

void Watch::post(int rank, std::vector<uint8_t> frame) {
  {
    std::lock_guard<std::mutex> lock(posted_mutex_);
    posted_.emplace_back(rank, std::move(frame));
  }
  wake_.set();
}

void Watch::send_posted() {
  wake_.clear();
  std::vector<std::pair<int, std::vector<uint8_t>>> posted;
  {
    std::lock_guard<std::mutex> lock(posted_mutex_);
    posted.swap(posted_);
  }
  for (const auto& [rank, frame] : posted)
    for (Watched& peer : watched_)
      if (peer.peer.rank() == rank && !peer.gone) peer.channel.send(frame);
}

void Watch::lost(Watched& peer) {
  peer.gone = true;
  if (abort_->raised()) return;
  if (closing_.load(std::memory_order_acquire)) {
    // At the normal end nobody is left to read this; but ranks that have not heard of a shutdown yet learn
    // who has cut it short. A peer that only closes its end lives on, so its end is not waited for.
    abort_->raise(Status::unknown("The shutdown of Horovod was cut short: " + peer.peer.name() + " " +
                                  peer.peer.describe_end(0, "closed its connection") + "."));
    return;
  }
  constexpr int kMilliseconds = 50;
  abort_->raise(Status::unknown(peer.peer.name() + " " +
                                peer.peer.describe_end(kMilliseconds, "closed its connection") + ".")
                    .blame(peer.peer.rank()));
}

void Watch::spread_abort() {
  const std::vector<uint8_t> frame = wire::encode_abort(abort_->reason());
  for (Watched& peer : watched_)
    if (!peer.gone) peer.channel.send(frame);
}

}  // namespace hvd
