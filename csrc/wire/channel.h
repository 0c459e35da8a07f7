// Frames over a connected stream socket, without blocking. Not thread-safe; the owner guards sending if it
// must. With keys every frame is followed by a code over its number, which both ends count, and its content:
// one that was changed, repeated, left out, moved or sent back does not have the right one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/siphash.h"

namespace hvd::wire {

struct Keys {
  Key send, receive;
};

class Channel {
 public:
  // Takes the descriptor over; -1 makes a channel that is closed from the start.
  explicit Channel(int fd = -1, const Keys* keys = nullptr);
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return closed_ ? -1 : fd_; }
  // The connection ends now, but the number stays taken until the channel is gone: what else got it would be
  // closed in its place in a forked child (Engine::after_fork_in_child).
  void close();

  // Sends what the socket takes and keeps the rest for flush(). False if the connection is broken.
  bool send(const std::vector<uint8_t>& frame);
  bool flush();
  bool has_unsent() const { return sent_ < outbox_.size(); }

  // kForged: a frame had the wrong code. The connection is not to be used any more.
  enum class Received { kNothing, kFrame, kClosed, kForged };
  // The next frame without its length; valid until the next call. Reads from the socket only if none is
  // buffered.
  Received receive(const uint8_t** data, size_t* size);

 private:
  bool next_buffered(const uint8_t** data, size_t* size);
  Code code(const Key& key, uint64_t number, const uint8_t* data, size_t size) const;
  bool send_bytes(const std::vector<uint8_t>& bytes);

  int fd_;
  bool closed_ = false;
  bool has_keys_ = false;
  Keys keys_{};
  uint64_t frames_sent_ = 0, frames_received_ = 0;
  std::vector<uint8_t> sealed_;  // the frame being sent, with its code
  std::vector<uint8_t> outbox_;
  size_t sent_ = 0;
  std::vector<uint8_t> inbox_;
  size_t begin_ = 0, end_ = 0;
  bool broken_ = false, forged_ = false;
};

// What to fail with after kForged.
Status forged(const std::string& connection);

}  // namespace hvd::wire
