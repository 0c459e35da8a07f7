#include "wire/channel.h"

#include <fcntl.h>
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
  return *this;
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
    ssize_t sent = ::send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(frame.size())) return true;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) done = static_cast<size_t>(sent);
  }
  outbox_.insert(outbox_.end(), frame.begin() + static_cast<ptrdiff_t>(done), frame.end());
  return true;
}

bool Channel::flush() {
  while (has_unsent()) {
    ssize_t sent = ::send(fd_, outbox_.data() + sent_, outbox_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(sent);
  }
  outbox_.clear();
  sent_ = 0;
  return true;
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
    ssize_t got = ::recv(fd_, inbox_.data() + end_, inbox_.size() - end_, MSG_DONTWAIT);
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
