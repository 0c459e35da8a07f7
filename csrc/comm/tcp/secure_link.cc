#include "comm/tcp/secure_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd {

namespace {

constexpr size_t kRecord = 64 << 10;  // most of a record, before encryption
constexpr size_t kBurst = 256 << 10;
constexpr size_t kHeader = sizeof(uint32_t);

}  // namespace

SecureLink::SecureLink(const LinkKeys& keys) : encrypt_(keys.send, true), decrypt_(keys.receive, false) {}

bool SecureLink::seal(Transfer& transfer) {
  outbox_.clear();
  sent_ = 0;
  while (transfer.bytes > 0 && outbox_.size() < kBurst) {
    const auto length = static_cast<uint32_t>(std::min(transfer.bytes, kRecord));
    const size_t start = outbox_.size();
    outbox_.resize(start + kHeader + length + Cipher::kTagBytes);
    uint8_t* at = outbox_.data() + start;
    std::memcpy(at, &length, kHeader);
    at += kHeader;
    if (!encrypt_.begin()) return false;
    for (size_t left = length; left > 0;) {
      const size_t bytes = std::min(transfer.place->contiguous(), left);
      if (!encrypt_.add(transfer.place->here(), bytes, at)) return false;
      transfer.place->advance(bytes);
      at += bytes;
      left -= bytes;
    }
    transfer.bytes -= length;
    if (!encrypt_.finish(at)) return false;
  }
  return true;
}

ssize_t SecureLink::send(int fd) {
  const ssize_t sent = ::send(fd, outbox_.data() + sent_, outbox_.size() - sent_, MSG_NOSIGNAL);
  if (sent > 0) sent_ += static_cast<size_t>(sent);
  return sent;
}

ssize_t SecureLink::receive(int fd, Transfer& transfer) {
  while (taken_ == plain_.size() && !open_record()) {
    if (forged_) {
      errno = EBADMSG;
      return -1;
    }
    inbox_.resize(kBurst);  // not before: with many hosts most connections have nothing to do
    std::memmove(inbox_.data(), inbox_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const ssize_t arrived = recv(fd, inbox_.data() + end_, inbox_.size() - end_, 0);
    if (arrived <= 0) return arrived;
    end_ += static_cast<size_t>(arrived);
  }
  const size_t bytes = std::min(plain_.size() - taken_, transfer.bytes);
  scatter(plain_.data() + taken_, *transfer.place, bytes);
  taken_ += bytes;
  transfer.bytes -= bytes;
  return static_cast<ssize_t>(bytes);
}

bool SecureLink::open_record() {
  uint32_t length = 0;
  if (end_ - begin_ < kHeader) return false;
  std::memcpy(&length, inbox_.data() + begin_, kHeader);
  if (length == 0 || length > kRecord) {
    forged_ = true;
    return false;
  }
  if (end_ - begin_ < kHeader + length + Cipher::kTagBytes) return false;
  const uint8_t* at = inbox_.data() + begin_ + kHeader;
  plain_.resize(length);
  taken_ = 0;
  begin_ += kHeader + length + Cipher::kTagBytes;
  if (decrypt_.begin() && decrypt_.add(at, length, plain_.data()) && decrypt_.check(at + length)) return true;
  plain_.clear();
  forged_ = true;
  return false;
}

}  // namespace hvd
