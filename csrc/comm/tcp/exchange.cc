#include "comm/tcp/exchange.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "comm/tcp/stripes.h"

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
    streams_ = links[peer].streams->size();
  }
  poll_.reserve(connections_.size() * streams_ + 1);
}

void TcpExchange::Direction::reset(size_t streams) {
  flows.assign(streams, Flow());
  end = left = 0;
  ended = false;
}

void TcpExchange::Direction::take(const Transfer& transfer) {
  for (Flow& flow : flows) {
    flow.place = *transfer.place;
    flow.at = end;
  }
  end += transfer.bytes;
  left = transfer.bytes;
  transfer.place->advance(transfer.bytes);
}

Transfer TcpExchange::Direction::next(size_t stream) {
  Flow& flow = flows[stream];
  const Stripe stripe = next_stripe(flow.at, end, stream, flows.size());
  flow.place.advance(stripe.begin - flow.at);
  flow.at = stripe.begin;
  return {&flow.place, stripe.bytes()};
}

void TcpExchange::Direction::moved(size_t stream, size_t bytes) {
  flows[stream].at += bytes;
  left -= bytes;
}

Status TcpExchange::run(Plan& plan) {
  for (Connection& connection : connections_) {
    connection.in.reset(streams_);
    connection.out.reset(streams_);
  }
  for (int looks = 0;;) {
    bool moved = false, ended = true;
    for (Connection& connection : connections_) {
      Moved out = send(plan, connection);
      Moved in = out == Moved::kFailed ? Moved::kFailed : receive(plan, connection);
      if (in == Moved::kFailed) return std::move(failure_);
      moved |= out == Moved::kSome || in == Moved::kSome;
      ended &= connection.in.ended && connection.out.ended && !has_unsent(connection);
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

bool TcpExchange::has_unsent(const Connection& connection) {
  const std::vector<End>& streams = *connection.link.streams;
  return std::any_of(streams.begin(), streams.end(),
                     [](const End& end) { return end.secure != nullptr && end.secure->has_unsent(); });
}

TcpExchange::Moved TcpExchange::failed(ssize_t result, const Connection& connection, size_t stream,
                                       Flow& flow) {
  if (result < 0 && errno == EINTR) return Moved::kSome;
  flow.blocked = result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (flow.blocked) return Moved::kNothing;
  fail(connection, stream, result < 0 ? errno : 0);
  return Moved::kFailed;
}

TcpExchange::Moved TcpExchange::send(Plan& plan, Connection& connection) {
  Direction& out = connection.out;
  while (out.left == 0 && !out.ended) {
    Transfer transfer;
    Next next = plan.send(connection.peer, transfer);
    if (next == Next::kLater) break;
    out.ended = next == Next::kEnd;
    if (next == Next::kTransfer) out.take(transfer);
  }
  bool some = false;
  for (size_t stream = 0; stream < streams_; ++stream) {
    const Moved moved = send(connection, stream);
    if (moved == Moved::kFailed) return moved;
    some |= moved == Moved::kSome;
  }
  return some ? Moved::kSome : Moved::kNothing;
}

TcpExchange::Moved TcpExchange::send(Connection& connection, size_t stream) {
  Direction& out = connection.out;
  Flow& flow = out.flows[stream];
  if (flow.blocked) return Moved::kNothing;
  const End& end = connection.end(stream);
  Transfer transfer = out.next(stream);
  if (SecureLink* secure = end.secure.get(); secure != nullptr) {
    if (!secure->has_unsent()) {
      const size_t bytes = transfer.bytes;
      if (bytes == 0) return Moved::kNothing;
      if (!secure->seal(transfer)) {
        errno = EIO;
        return failed(-1, connection, stream, flow);
      }
      out.moved(stream, bytes - transfer.bytes);
      connection.link.traffic->add_sent(bytes - transfer.bytes);  // without what encryption adds
    }
    const ssize_t sent = secure->send(end.fd);
    return sent > 0 ? Moved::kSome : failed(sent, connection, stream, flow);
  }
  if (transfer.bytes == 0) return Moved::kNothing;
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = vectors_of(transfer, vectors);
  ssize_t sent = sendmsg(end.fd, &message, MSG_NOSIGNAL);
  if (sent < 0) return failed(sent, connection, stream, flow);
  connection.link.traffic->add_sent(static_cast<uint64_t>(sent));
  flow.place.advance(static_cast<size_t>(sent));
  out.moved(stream, static_cast<size_t>(sent));
  return Moved::kSome;
}

TcpExchange::Moved TcpExchange::receive(Plan& plan, Connection& connection) {
  Direction& in = connection.in;
  while (in.left == 0 && !in.ended) {
    Transfer transfer;
    Next next = plan.receive(connection.peer, transfer);
    if (next == Next::kLater) return Moved::kNothing;
    in.ended = next == Next::kEnd;
    if (next != Next::kTransfer) continue;
    in.take(transfer);
    if (in.left == 0) plan.received(connection.peer);
  }
  if (in.ended) return Moved::kNothing;
  bool some = false;
  for (size_t stream = 0; stream < streams_; ++stream) {
    const Moved moved = receive(connection, stream);
    if (moved == Moved::kFailed) return moved;
    some |= moved == Moved::kSome;
  }
  if (in.left == 0) plan.received(connection.peer);
  return some ? Moved::kSome : Moved::kNothing;
}

TcpExchange::Moved TcpExchange::receive(Connection& connection, size_t stream) {
  Direction& in = connection.in;
  Flow& flow = in.flows[stream];
  if (flow.blocked) return Moved::kNothing;
  const End& end = connection.end(stream);
  Transfer transfer = in.next(stream);
  if (transfer.bytes == 0) return Moved::kNothing;
  ssize_t arrived = 0;
  if (end.secure != nullptr) {
    arrived = end.secure->receive(end.fd, transfer);
  } else {
    iovec vectors[kVectors];
    msghdr message = {};
    message.msg_iov = vectors;
    message.msg_iovlen = vectors_of(transfer, vectors);
    arrived = recvmsg(end.fd, &message, 0);
    if (arrived > 0) flow.place.advance(static_cast<size_t>(arrived));
  }
  if (arrived <= 0) return failed(arrived, connection, stream, flow);
  connection.link.traffic->add_received(static_cast<uint64_t>(arrived));
  in.moved(stream, static_cast<size_t>(arrived));
  return Moved::kSome;
}

void TcpExchange::wait(int milliseconds) {
  poll_.clear();
  poll_.push_back({abort_.fd(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    for (size_t stream = 0; stream < streams_; ++stream) {
      const int events = (connection.out.flows[stream].blocked ? POLLOUT : 0) |
                         (connection.in.flows[stream].blocked ? POLLIN : 0);
      // An entry that is not waited for keeps its place, but the kernel must not look at it: it would report
      // hang-ups.
      poll_.push_back({events != 0 ? connection.end(stream).fd : -1, static_cast<short>(events), 0});
    }
  }
  // Errors (EINTR) are as good as a time-out: everything is tried again.
  if (poll(poll_.data(), poll_.size(), milliseconds) <= 0) return;
  for (size_t i = 1; i < poll_.size(); ++i) {
    const short ready = poll_[i].revents;
    Connection& connection = connections_[(i - 1) / streams_];
    const size_t stream = (i - 1) % streams_;
    if (ready & (POLLOUT | POLLERR | POLLHUP | POLLNVAL)) connection.out.flows[stream].blocked = false;
    if (ready & (POLLIN | POLLERR | POLLHUP | POLLNVAL)) connection.in.flows[stream].blocked = false;
  }
}

void TcpExchange::fail(const Connection& connection, size_t stream, int error) {
  const bool wrong = error == EBADMSG || connection.end(stream).fd < 0;  // nobody knows that better
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
  if (connection.end(stream).fd < 0) {
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
