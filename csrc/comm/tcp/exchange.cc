#include "comm/tcp/exchange.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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
constexpr std::chrono::milliseconds kMoment{100};

// The memory of the transfer's next burst. Returns the number of vectors.
size_t vectors_of(const Transfer& transfer, iovec* vectors) {
  Cursor place = *transfer.place;
  size_t left = std::min(transfer.bytes, kBurst), count = 0;
  while (left > 0 && count < kVectors) {
    size_t length = std::min(place.contiguous(), left);
    vectors[count++] = {place.here(), length};
    place.advance(length);
    left -= length;
  }
  return count;
}

}  // namespace

TcpExchange::TcpExchange(std::vector<Link> links, int rank, const AbortSignal& abort) : abort_(abort) {
  int size = static_cast<int>(links.size());
  // Everybody starts with another peer, so that no one is flooded.
  for (int i = 1; i < size; ++i) {
    int peer = (rank + i) % size;
    connections_.push_back({links[peer], peer, {}, {}});
  }
  poll_.reserve(connections_.size() + 1);
}

Status TcpExchange::run(Plan& plan) {
  for (Connection& connection : connections_) connection.in = connection.out = Direction();
  for (int looks = 0;;) {
    bool moved = false, ended = true;
    for (Connection& connection : connections_) {
      Moved out = send(plan, connection);
      Moved in = out == Moved::kFailed ? Moved::kFailed : receive(plan, connection);
      if (in == Moved::kFailed) return std::move(failure_);
      moved |= out == Moved::kSome || in == Moved::kSome;
      ended &= connection.in.ended && connection.out.ended;
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

TcpExchange::Moved TcpExchange::failed(ssize_t result, Connection& connection, Direction& direction) {
  if (result < 0 && errno == EINTR) return Moved::kSome;
  direction.blocked = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (direction.blocked) return Moved::kNothing;
  fail(connection, result < 0 ? errno : 0);
  return Moved::kFailed;
}

TcpExchange::Moved TcpExchange::send(Plan& plan, Connection& connection) {
  Direction& out = connection.out;
  SecureLink* secure = connection.link.end->secure.get();
  const bool left_over = secure != nullptr && secure->has_unsent();
  while (out.transfer.bytes == 0 && !out.ended && !left_over) {
    Next next = plan.send(connection.peer, out.transfer);
    if (next == Next::kLater) return Moved::kNothing;
    out.ended = next == Next::kEnd;
  }
  if (out.ended || out.blocked) return Moved::kNothing;
  if (secure != nullptr) {
    const size_t bytes = out.transfer.bytes;
    if (!left_over && !secure->seal(out.transfer)) {
      errno = EIO;
      return failed(-1, connection, out);
    }
    connection.link.traffic->add_sent(bytes - out.transfer.bytes);  // without what encryption adds
    const ssize_t sent = secure->send(connection.link.end->fd);
    return sent > 0 ? Moved::kSome : failed(sent, connection, out);
  }
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = vectors_of(out.transfer, vectors);
  ssize_t sent = sendmsg(connection.link.end->fd, &message, MSG_NOSIGNAL);
  if (sent < 0) return failed(sent, connection, out);
  connection.link.traffic->add_sent(static_cast<uint64_t>(sent));
  out.transfer.place->advance(static_cast<size_t>(sent));
  out.transfer.bytes -= static_cast<size_t>(sent);
  return Moved::kSome;
}

TcpExchange::Moved TcpExchange::receive(Plan& plan, Connection& connection) {
  Direction& in = connection.in;
  while (in.transfer.bytes == 0 && !in.ended) {
    Next next = plan.receive(connection.peer, in.transfer);
    if (next == Next::kLater) return Moved::kNothing;
    in.ended = next == Next::kEnd;
    if (next == Next::kTransfer && in.transfer.bytes == 0) plan.received(connection.peer);
  }
  if (in.ended || in.blocked) return Moved::kNothing;
  if (connection.link.end->secure != nullptr) {
    const ssize_t arrived = connection.link.end->secure->receive(connection.link.end->fd, in.transfer);
    if (arrived <= 0) return failed(arrived, connection, in);
    connection.link.traffic->add_received(static_cast<uint64_t>(arrived));
    if (in.transfer.bytes == 0) plan.received(connection.peer);
    return Moved::kSome;
  }
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = vectors_of(in.transfer, vectors);
  ssize_t arrived = recvmsg(connection.link.end->fd, &message, 0);
  if (arrived <= 0) return failed(arrived, connection, in);
  connection.link.traffic->add_received(static_cast<uint64_t>(arrived));
  in.transfer.place->advance(static_cast<size_t>(arrived));
  in.transfer.bytes -= static_cast<size_t>(arrived);
  if (in.transfer.bytes == 0) plan.received(connection.peer);
  return Moved::kSome;
}

void TcpExchange::wait(int milliseconds) {
  poll_.clear();
  poll_.push_back({abort_.fd(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    int events = (connection.out.blocked ? POLLOUT : 0) | (connection.in.blocked ? POLLIN : 0);
    // An entry that is not waited for keeps its place, but the kernel must not look at it: it would report
    // hang-ups.
    poll_.push_back({events != 0 ? connection.link.end->fd : -1, static_cast<short>(events), 0});
  }
  // Errors (EINTR) are as good as a time-out: everything is tried again.
  if (poll(poll_.data(), poll_.size(), milliseconds) <= 0) return;
  for (size_t i = 0; i < connections_.size(); ++i) {
    short ready = poll_[i + 1].revents;
    if (ready & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) connections_[i].out.blocked = false;
    if (ready & (POLLIN | POLLERR | POLLHUP | POLLNVAL)) connections_[i].in.blocked = false;
  }
}

void TcpExchange::fail(const Connection& connection, int error) {
  const bool wrong = error == EBADMSG || connection.link.end->fd < 0;  // nobody knows that better
  if (abort_.raised_within(wrong ? kMoment : abort_.patience())) {
    failure_ = abort_.reason();
    return;
  }
  std::string rank = "rank " + std::to_string(connection.link.world_rank);
  if (error == EBADMSG) {
    failure_ =
        Status::unknown("the data from " + rank + " has a wrong authentication code: someone in between " +
                        "has changed, repeated or left out something");
    return;
  }
  if (connection.link.end->fd < 0) {
    failure_ = Status::unknown("there is no connection to " + rank + " for data");
    return;
  }
  failure_ =
      Status::unknown(error == 0 ? "the connection to " + rank +
                                       " was closed during a collective; its process has probably ended, " +
                                       "see the output of " + rank
                                 : "the connection to " + rank + " failed during a collective (" +
                                       std::strerror(error) + "); see the output of " + rank +
                                       " and check the network between the hosts")
          .blame(connection.link.world_rank);
}

}  // namespace hvd
