#include "wire/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/messages.h"

namespace hvd::wire {

Channel::Channel(int fd, const Keys* keys) : fd_(fd), has_keys_(keys != nullptr) {
  if (keys != nullptr) keys_ = *keys;
  if (fd_ >= 0) fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
}

Channel::Channel(Channel&& other) noexcept : fd_(-1) { *this = std::move(other); }

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  closed_ = other.closed_;
  has_keys_ = other.has_keys_;
  keys_ = other.keys_;
  frames_sent_ = other.frames_sent_;
  frames_received_ = other.frames_received_;
  outbox_ = std::move(other.outbox_);
  sent_ = other.sent_;
  inbox_ = std::move(other.inbox_);
  begin_ = other.begin_;
  end_ = other.end_;
  broken_ = other.broken_;
  forged_ = other.forged_;
  rings_ = other.rings_;
  rung_ = other.rung_.load();
  bell_ = other.bell_;
  return *this;
}

void Channel::use(const RingEnd& rings) {
  rings_ = rings;
  has_keys_ = false;
}

void Channel::close() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  closed_ = true;
}

Code Channel::code(const Key& key, uint64_t number, const uint8_t* data, size_t size) const {
  SipHash hash(key);
  hash.word(number);
  return hash.finish(data, size);
}

bool Channel::send(const std::vector<uint8_t>& frame) {
  if (!has_keys_) return send_bytes(frame);
  sealed_.assign(frame.begin(), frame.end());
  const Code made =
      code(keys_.send, frames_sent_++, frame.data() + sizeof(uint32_t), frame.size() - sizeof(uint32_t));
  sealed_.insert(sealed_.end(), made.begin(), made.end());
  return send_bytes(sealed_);
}

bool Channel::send_bytes(const std::vector<uint8_t>& frame) {
  size_t done = 0;
  if (!has_unsent()) {
    const ptrdiff_t sent = put(frame.data(), frame.size());
    if (sent == static_cast<ptrdiff_t>(frame.size())) return true;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) done = static_cast<size_t>(sent);
  }
  outbox_.insert(outbox_.end(), frame.begin() + static_cast<ptrdiff_t>(done), frame.end());
  return true;
}

bool Channel::flush() {
  while (has_unsent()) {
    const ptrdiff_t sent = put(outbox_.data() + sent_, outbox_.size() - sent_);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(sent);
  }
  outbox_.clear();
  sent_ = 0;
  return true;
}

// As ::send(); with rings, too, which may take a part.
ptrdiff_t Channel::put(const uint8_t* data, size_t size) {
  if (!rings_) return ::send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  size_t count = rings_.out->put(data, size);
  if (count < size) {
    rings_.out->wanting.store(1, std::memory_order_seq_cst);
    count +=
        rings_.out->put(data + count, size - count);  // the reader may just have made room, and not looked
  }
  if (count == size && rings_.out->wanting.load(std::memory_order_relaxed) != 0) rings_.out->wanting = 0;
  if (count > 0 && rings_.others->load(std::memory_order_seq_cst) != 0) ring_bell();
  if (count > 0) return static_cast<ptrdiff_t>(count);
  errno = EAGAIN;
  return -1;
}

// As ::recv().
ptrdiff_t Channel::take(uint8_t* data, size_t room) {
  if (!rings_) return ::recv(fd_, data, room, MSG_DONTWAIT);
  const size_t count = rings_.in->take(data, room);
  if (count > 0) {
    if (rings_.in->wanting.load(std::memory_order_seq_cst) != 0) ring_bell();
    return static_cast<ptrdiff_t>(count);
  }
  if (rung_.load(std::memory_order_relaxed) && rung_.exchange(false)) return hear_bells(data, room);
  errno = EAGAIN;
  return -1;
}

ptrdiff_t Channel::hear_bells(uint8_t* data, size_t room) {
  uint8_t bells[256];
  const ssize_t heard = ::recv(fd_, bells, sizeof bells, MSG_DONTWAIT);
  if (heard < 0) return -1;
  rung_ = heard == 0 || heard == sizeof bells;  // to be told again
  if (heard > 0) {
    rings_.bell_in->store(0, std::memory_order_seq_cst);  // before the ring is looked at
    bell_ = true;
    errno = EINTR;  // look again
    return -1;
  }
  return static_cast<ptrdiff_t>(rings_.in->take(data, room));  // what the other end wrote before it went
}

void Channel::ring_bell() {
  if (rings_.bell_out->exchange(1, std::memory_order_seq_cst) != 0) return;
  const uint8_t bell = 0;
  // If it fails, because the system has no memory for it, the next one must not count on it.
  if (::send(fd_, &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) rings_.bell_out->store(0);
}

short Channel::polled_events(bool listen) const {
  if (rings_) return listen || has_unsent() ? POLLIN : 0;  // there is room when a bell rings
  return static_cast<short>((listen ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0));
}

bool Channel::begin_sleep() {
  if (!rings_) return true;
  rings_.mine->fetch_add(1, std::memory_order_seq_cst);
  return rings_.in->empty();
}

void Channel::end_sleep(bool rung) {
  if (!rings_) return;
  rings_.mine->fetch_sub(1, std::memory_order_seq_cst);
  if (rung) rung_ = true;
}

bool Channel::next_buffered(const uint8_t** data, size_t* size) {
  uint32_t length = 0;
  if (end_ - begin_ < sizeof length) return false;
  std::memcpy(&length, inbox_.data() + begin_, sizeof length);
  if (length > kMaxFrame) {
    broken_ = true;
    forged_ = has_keys_;
    return false;
  }
  const size_t code_bytes = has_keys_ ? sizeof(Code) : 0;
  if (end_ - begin_ < sizeof length + length + code_bytes) return false;
  *data = inbox_.data() + begin_ + sizeof length;
  *size = length;
  begin_ += sizeof length + length + code_bytes;
  if (has_keys_) {
    const Code right = code(keys_.receive, frames_received_++, *data, length);
    uint8_t different = 0;  // all bytes are looked at, so that the time tells nothing
    for (size_t i = 0; i < sizeof(Code); ++i)
      different |= static_cast<uint8_t>(right[i] ^ (*data)[length + i]);
    if (different != 0) broken_ = forged_ = true;
  }
  return !broken_;
}

Channel::Received Channel::receive(const uint8_t** data, size_t* size) {
  while (!broken_) {
    if (next_buffered(data, size)) return Received::kFrame;
    if (broken_) break;
    // Make room at the end; grows only as bytes really arrive.
    if (begin_ > 0) {
      std::memmove(inbox_.data(), inbox_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (inbox_.size() - end_ < 4096) inbox_.resize(inbox_.size() * 2 < 65536 ? 65536 : inbox_.size() * 2);
    const ptrdiff_t got = take(inbox_.data() + end_, inbox_.size() - end_);
    if (got > 0) {
      end_ += static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Received::kNothing;
    broken_ = true;
  }
  return forged_ ? Received::kForged : Received::kClosed;
}

Status forged(const std::string& connection) {
  return Status::unknown("A message on " + connection +
                         " has a wrong authentication code: someone in between has changed, repeated or left "
                         "out something.");
}

}  // namespace hvd::wire
