#include "engine/watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "base/thread.h"
#include "engine/branches.h"
#include "engine/clock_offset.h"
#include "wire/messages.h"

namespace hvd {

using Clock = std::chrono::steady_clock;

namespace {

// A process of this host that is not stopped, but silent, gets no processor: there are too many others. One
// elsewhere that has never been heard of may still be starting. They are given so many times as long.
constexpr int kPatience = 10;

constexpr std::chrono::milliseconds kLast{200};

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
Watch::Watch(int rank, const std::vector<int>& parents, std::vector<Watched> watched, Timeouts timeouts,
             AbortSignal* abort, Hooks hooks)
    : rank_(rank),
      above_(parents[static_cast<size_t>(rank)]),
      watched_(std::move(watched)),
      limit_here_(timeouts.here * 3 / 4),
      limit_elsewhere_(timeouts.elsewhere * 3 / 4),
      interval_(std::min(timeouts.here, timeouts.elsewhere) / 6),
      last_tick_(Clock::now()),
      abort_(abort),
      hooks_(std::move(hooks)) {
  for (int to = 0; to < static_cast<int>(parents.size()); ++to)
    next_hops_.push_back(next_hop(rank, to, parents));
  root_.known = rank == 0;
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
  std::vector<pollfd> polled;
  Clock::time_point next_tick = Clock::now();
  for (;;) {
    if (abort_->raised()) spread(abort_->reason());
    if (Clock::now() >= next_tick) {
      tick();
      next_tick = Clock::now() + std::chrono::duration_cast<Clock::duration>(interval_);
    }
    polled.assign({{stop_.fd(), POLLIN, 0}, {spread_ ? -1 : abort_->fd(), POLLIN, 0}});
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
      if (abort_->raised()) spread(abort_->reason());
      return flush_last();
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
  for (Watched& peer : watched_) {
    if (peer.gone) continue;
    listen(peer);
    if (peer.gone) continue;
    if (!peer.channel.has_unsent()) {
      peer.channel.send(wire::encode_clock({nanoseconds(), peer.last.sent, peer.last.arrived, root_}));
      if (is_above(peer)) send_progress(peer);
    }
    peer.heard = was_asleep ? now : std::max(peer.heard, last_arrival(peer.control));
    std::chrono::duration<double> silence = now - peer.heard;
    const bool here = peer.peer.pidfd() >= 0;
    if (silence < (here ? limit_here_ : limit_elsewhere_)) continue;
    const bool excused = here ? peer.peer.runs() : !peer.met;
    if (excused && silence < kPatience * limit_here_) continue;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", silence.count());
    raise(Status::unknown(peer.peer.name() + " has been silent for " + seconds + " s" +
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
        raise(wire::forged("the liveness connection to " + peer.peer.name()));  // it may still hear that
        peer.gone = true;
        return;
      case wire::Channel::Received::kFrame: {
        peer.heard = Clock::now();
        peer.met = true;
        if (relay(peer, data, size)) continue;
        wire::Message message;
        if (!wire::decode(data, size, &message)) return lost(peer);
        received(peer, message);
      }
    }
  }
}

void Watch::received(Watched& peer, wire::Message& message) {
  switch (message.type) {
    case wire::MessageType::kAbort:
      return raise(Status::unknown(message.text).blame(message.culprit, message.silent));
    case wire::MessageType::kClock: {
      const int64_t now = nanoseconds();
      const wire::ClockOffset root = beyond(neighbour_offset(message.clock, now), message.clock.root);
      if (is_above(peer) && root.known) {
        root_ = root;
        if (hooks_.clock) hooks_.clock(root);
      }
      peer.last.sent = message.clock.sent;
      peer.last.arrived = now;
      return;
    }
    case wire::MessageType::kProgress:
      for (wire::RankProgress& each : message.progress) {
        const auto rank = static_cast<size_t>(each.rank);
        if (each.rank < 0 || rank >= next_hops_.size() || next_hops_[rank] != peer.peer.rank()) continue;
        if (rank_ != 0) {
          below_.add(std::move(each), Clock::now());
        } else if (hooks_.progress) {
          hooks_.progress(each.rank, each.progress);
        }
      }
      return;
    default:
      return;
  }
}

// Takes what was posted, and passes on what is for another rank. False if it is something else, or does not
// come from where it should.
bool Watch::relay(const Watched& from, const uint8_t* data, size_t size) {
  std::vector<int32_t> ranks;
  const uint8_t* posted = nullptr;
  size_t posted_size = 0;
  if (!wire::unwrap(data, size, &ranks, &posted, &posted_size)) return false;
  if (ranks.size() != 2 || ranks[0] < 0 || static_cast<size_t>(ranks[0]) >= next_hops_.size()) return false;
  const wire::MessageType type = wire::type_of(data, size);
  const bool down = type == wire::MessageType::kTo;
  const bool over_sender = next_hops_[static_cast<size_t>(ranks[0])] == from.peer.rank();
  if (is_above(from) != down || over_sender == down) return false;
  const int to = down ? ranks[0] : 0;
  if (to != rank_) {
    send_towards(to, wire::wrap(type, ranks, posted, posted_size));
    return true;
  }
  wire::Message message;
  if (!wire::decode(posted, posted_size, &message)) return false;
  if (hooks_.received) hooks_.received(ranks[0], message);
  return true;
}

void Watch::send_towards(int rank, const std::vector<uint8_t>& frame) {
  for (Watched& peer : watched_)
    if (peer.peer.rank() == next_hops_[static_cast<size_t>(rank)] && !peer.gone) peer.channel.send(frame);
}

void Watch::send_progress(Watched& above) {
  std::vector<wire::RankProgress> all = below_.take(Clock::now());
  if (hooks_.own_progress) {
    all.push_back({rank_, hooks_.own_progress()});
    all.back().progress.root = root_;
  }
  if (!all.empty()) above.channel.send(wire::encode_progress(all));
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
  for (const auto& [rank, frame] : posted) {
    const auto type = rank == 0 ? wire::MessageType::kFrom : wire::MessageType::kTo;
    send_towards(rank, wire::wrap(type, {rank == 0 ? rank_ : rank, 1}, frame.data() + sizeof(uint32_t),
                                  frame.size() - sizeof(uint32_t)));
  }
}

void Watch::lost(Watched& peer) {
  peer.gone = true;
  if (abort_->raised()) return;
  if (closing_.load(std::memory_order_acquire)) {
    // At the normal end nobody is left to read this; but ranks that have not heard of a shutdown yet learn
    // who has cut it short. A peer that only closes its end lives on, so its end is not waited for.
    return raise(Status::unknown("The shutdown of Horovod was cut short: " + peer.peer.name() + " " +
                                 peer.peer.describe_end(0, "closed its connection") + "."));
  }
  constexpr int kMilliseconds = 50;
  raise(Status::unknown(peer.peer.name() + " " +
                        peer.peer.describe_end(kMilliseconds, "closed its connection") + ".")
            .blame(peer.peer.rank()));
}

// Tells the others first: this process may end as soon as it knows.
void Watch::raise(Status reason) {
  if (!abort_->raised()) spread(reason);
  abort_->raise(std::move(reason));
}

void Watch::spread(const Status& reason) {
  if (std::exchange(spread_, true)) return;
  const std::vector<uint8_t> frame = wire::encode_abort(reason);
  for (Watched& peer : watched_)
    if (!peer.gone) peer.channel.send(frame);
}

// A connection that ends before the reason has gone out would make this rank the culprit.
void Watch::flush_last() {
  const Clock::time_point end = Clock::now() + kLast;
  for (Watched& peer : watched_)
    while (spread_ && !peer.gone && peer.channel.has_unsent() && Clock::now() < end) {
      pollfd room{peer.channel.fd(), POLLOUT, 0};
      if (poll(&room, 1, kLast.count()) > 0 && !peer.channel.flush()) break;
    }
}

}  // namespace hvd
