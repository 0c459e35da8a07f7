// Frames over a connected stream socket, without blocking. Not thread-safe; the owner guards sending if it
// must.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd::wire {

class Channel {
 public:
  // Takes the descriptor over; -1 makes a channel that is closed from the start.
  explicit Channel(int fd = -1);
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

  enum class Received { kNothing, kFrame, kClosed };
  // The next frame without its length; valid until the next call. Reads from the socket only if none is
  // buffered.
  Received receive(const uint8_t** data, size_t* size);

 private:
  bool next_buffered(const uint8_t** data, size_t* size);

  int fd_;
  bool closed_ = false;
  std::vector<uint8_t> outbox_;
  size_t sent_ = 0;
  std::vector<uint8_t> inbox_;
  size_t begin_ = 0, end_ = 0;
  bool broken_ = false;
};

}  // namespace hvd::wire
