#include "comm/tcp_exchange.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace hvd {

namespace {

constexpr size_t kBurst = 512 << 10;
constexpr size_t kVectors = 64;
// Looks at all sockets before going to sleep: an answer is often only microseconds away, and a wake-up takes
// longer. They hurt when ranks share a core, so there are more after they were worth it and fewer after they
// were not.
constexpr int kFewestLooks = 4, kMostLooks = 64;
constexpr int kSliceMilliseconds = 200;
// A peer's death is also reported through the abort signal, with a better text: worth a moment's patience.
constexpr int kGraceMilliseconds = 100;

// The memory of the stretch's next burst. Returns the number of vectors.
size_t vectors_of(const Stretch& stretch, iovec* vectors) {
  Cursor place = *stretch.place;
  size_t left = std::min(stretch.bytes, kBurst), count = 0;
  while (left > 0 && count < kVectors) {
    size_t run = std::min(place.run(), left);
    vectors[count++] = {place.here(), run};
    place.advance(run);
    left -= run;
  }
  return count;
}

}  // namespace

TcpExchange::TcpExchange(std::vector<Link> links, int rank, const AbortSignal& abort) : abort_(abort) {
  int size = static_cast<int>(links.size());
  // Everybody starts with another peer, so that no one is flooded.
  for (int i = 1; i < size; ++i) {
    int peer = (rank + i) % size;
    lanes_.push_back({links[peer], peer, {}, {}});
  }
  poll_.reserve(lanes_.size() + 1);
}

Status TcpExchange::run(Plan& plan) {
  for (Lane& lane : lanes_) lane.in = lane.out = Direction();
  for (int looks = 0;;) {
    bool moved = false, ended = true;
    for (Lane& lane : lanes_) {
      Moved out = send(plan, lane);
      Moved in = out == Moved::kFailed ? Moved::kFailed : receive(plan, lane);
      if (in == Moved::kFailed) return std::move(failure_);
      moved |= out == Moved::kSome || in == Moved::kSome;
      ended &= lane.in.ended && lane.out.ended;
    }
    if (ended) return {};
    if (abort_.raised()) return abort_.reason();
    if (moved) {
      if (looks > 0)
        patience_ =
            looks <= patience_ ? std::min(2 * patience_, kMostLooks) : std::max(patience_ / 2, kFewestLooks);
      looks = 0;
    } else {
      wait(looks < patience_ ? 0 : kSliceMilliseconds);
      ++looks;
    }
  }
}

TcpExchange::Moved TcpExchange::failed(ssize_t result, Lane& lane, Direction& direction) {
  if (result < 0 && errno == EINTR) return Moved::kSome;
  direction.blocked = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (direction.blocked) return Moved::kNothing;
  fail(lane, result < 0 ? errno : 0);
  return Moved::kFailed;
}

TcpExchange::Moved TcpExchange::send(Plan& plan, Lane& lane) {
  Direction& out = lane.out;
  SecureLink* secure = lane.link.secure;
  const bool left_over = secure != nullptr && secure->has_unsent();
  while (out.stretch.bytes == 0 && !out.ended && !left_over) {
    Next next = plan.send(lane.peer, out.stretch);
    if (next == Next::kLater) return Moved::kNothing;
    out.ended = next == Next::kEnd;
  }
  if (out.ended || out.blocked) return Moved::kNothing;
  if (secure != nullptr) {
    if (!left_over && !secure->seal(out.stretch)) {
      errno = EIO;
      return failed(-1, lane, out);
    }
    const ssize_t sent = secure->send(lane.link.fd);
    return sent > 0 ? Moved::kSome : failed(sent, lane, out);
  }
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = vectors_of(out.stretch, vectors);
  ssize_t sent = sendmsg(lane.link.fd, &message, MSG_NOSIGNAL);
  if (sent < 0) return failed(sent, lane, out);
  out.stretch.place->advance(static_cast<size_t>(sent));
  out.stretch.bytes -= static_cast<size_t>(sent);
  return Moved::kSome;
}

TcpExchange::Moved TcpExchange::receive(Plan& plan, Lane& lane) {
  Direction& in = lane.in;
  while (in.stretch.bytes == 0 && !in.ended) {
    Next next = plan.receive(lane.peer, in.stretch);
    if (next == Next::kLater) return Moved::kNothing;
    in.ended = next == Next::kEnd;
    if (next == Next::kStretch && in.stretch.bytes == 0) plan.received(lane.peer);
  }
  if (in.ended || in.blocked) return Moved::kNothing;
  if (lane.link.secure != nullptr) {
    const ssize_t arrived = lane.link.secure->receive(lane.link.fd, in.stretch);
    if (arrived <= 0) return failed(arrived, lane, in);
    if (in.stretch.bytes == 0) plan.received(lane.peer);
    return Moved::kSome;
  }
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = vectors_of(in.stretch, vectors);
  ssize_t arrived = recvmsg(lane.link.fd, &message, 0);
  if (arrived <= 0) return failed(arrived, lane, in);
  in.stretch.place->advance(static_cast<size_t>(arrived));
  in.stretch.bytes -= static_cast<size_t>(arrived);
  if (in.stretch.bytes == 0) plan.received(lane.peer);
  return Moved::kSome;
}

void TcpExchange::wait(int milliseconds) {
  poll_.clear();
  poll_.push_back({abort_.fd(), POLLIN, 0});
  for (const Lane& lane : lanes_) {
    int events = (lane.out.blocked ? POLLOUT : 0) | (lane.in.blocked ? POLLIN : 0);
    // An entry that is not waited for keeps its place, but the kernel must not look at it: it would report
    // hang-ups.
    poll_.push_back({events != 0 ? lane.link.fd : -1, static_cast<short>(events), 0});
  }
  // Errors (EINTR) are as good as a time-out: everything is tried again.
  if (poll(poll_.data(), poll_.size(), milliseconds) <= 0) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    short ready = poll_[i + 1].revents;
    if (ready & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) lanes_[i].out.blocked = false;
    if (ready & (POLLIN | POLLERR | POLLHUP | POLLNVAL)) lanes_[i].in.blocked = false;
  }
}

void TcpExchange::fail(const Lane& lane, int error) {
  pollfd signal = {abort_.fd(), POLLIN, 0};
  poll(&signal, 1, kGraceMilliseconds);
  if (abort_.raised()) {
    failure_ = abort_.reason();
    return;
  }
  std::string rank = "rank " + std::to_string(lane.link.world_rank);
  if (error == EBADMSG) {
    failure_ =
        Status::unknown("the data from " + rank + " has a wrong authentication code: someone in between " +
                        "has changed, repeated or left out something");
    return;
  }
  failure_ = Status::unknown(
      error == 0 ? "the connection to " + rank +
                       " was closed during a collective; its process has probably ended, " +
                       "see the output of " + rank
                 : "the connection to " + rank + " failed during a collective (" + std::strerror(error) +
                       "); see the output of " + rank + " and check the network between the hosts");
}

}  // namespace hvd
