// Frames over a connected stream socket, or through memory that both ends share, without blocking. Not
// thread-safe; the owner guards sending and receiving if it must. With keys every frame is followed by a code
// over its number, which both ends count, and its content: one that was changed, repeated, left out, moved or
// sent back does not have the right one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "wire/ring.h"
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

  // Before the first frame, at both ends: frames go through memory from here on, without codes, as nobody
  // else has it. The socket stays for bells and to tell that the other end is gone.
  void use(const RingEnd& rings);

  int fd() const { return closed_ ? -1 : fd_; }
  // The connection ends now, but the number stays taken until the channel is gone: what else got it would be
  // closed in its place in a forked child (Engine::after_fork_in_child).
  void close();

  // Sends what the socket takes and keeps the rest for flush(). False if the connection is broken.
  bool send(const std::vector<uint8_t>& frame);
  bool flush();
  bool has_unsent() const { return sent_ < outbox_.size(); }

  // What to poll the socket for: to hear of frames if it is to `listen`, and to send what is unsent.
  short polled_events(bool listen) const;
  // To be called, by any thread, before the socket is polled for frames; false if there is one already.
  // end_sleep() follows in any case, with whether the socket had something.
  bool begin_sleep();
  void end_sleep(bool rung);
  // Whether a bell has been heard since the last call: there may be room for what is unsent.
  bool take_bell() { return std::exchange(bell_, false); }

  // kForged: a frame had the wrong code. The connection is not to be used any more.
  enum class Received { kNothing, kFrame, kClosed, kForged };
  // The next frame without its length; valid until the next call. Reads from the socket only if none is
  // buffered.
  Received receive(const uint8_t** data, size_t* size);

 private:
  bool next_buffered(const uint8_t** data, size_t* size);
  Code code(const Key& key, uint64_t number, const uint8_t* data, size_t size) const;
  bool send_bytes(const std::vector<uint8_t>& bytes);
  ptrdiff_t put(const uint8_t* data, size_t size);
  ptrdiff_t take(uint8_t* data, size_t room);
  ptrdiff_t hear_bells(uint8_t* data, size_t room);
  void ring_bell();

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
  RingEnd rings_;
  std::atomic<bool> rung_{false};  // the socket has something, as far as a sleeper knows
  bool bell_ = false;
};

// What to fail with after kForged.
Status forged(const std::string& connection);

}  // namespace hvd::wire
