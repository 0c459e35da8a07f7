#include "engine/hub.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "engine/idle_backoff.h"
#include "wire/messages.h"

namespace hvd {
namespace {

timespec until(std::chrono::steady_clock::time_point then) {
  using namespace std::chrono;
  const auto left = std::max<nanoseconds>(then - steady_clock::now(), nanoseconds::zero());
  constexpr int64_t kSecond = 1'000'000'000;
  return {static_cast<time_t>(left.count() / kSecond), static_cast<long>(left.count() % kSecond)};
}

}  // namespace

Hub::Hub(std::vector<wire::Channel> channels, AbortSignal* abort)
    : abort_(abort), channels_(std::move(channels)) {}

void Hub::start(const char* name) {
  thread_ = start_thread(name, [this] { run(); });
}

void Hub::stop() {
  stop_.set();
  thread_.join();
}

void Hub::run() {
  std::vector<pollfd> polled;
  IdleBackoff backoff(visits_.load());
  while (!abort_->raised() && !finished()) {
    polled.assign({{stop_.fd(), POLLIN, 0}, {abort_->fd(), POLLIN, 0}, {unsent_.fd(), POLLIN, 0}});
    const bool attended = visitors_.load() > 0;
    backoff.looked(attended);
    const bool visited = backoff.update(visits_.load(), left_alone_.load(std::memory_order_relaxed));
    const bool relieved = visited || attended;
    if (!wait(&polled, relieved, backoff.pause())) continue;
    if (polled[0].revents != 0) return;
    if (polled[2].revents != 0) unsent_.clear();
    if (relieved && !overdue()) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    sent_ = false;
    look();
    backoff.woken(sent_);
  }
}

// False if a signal ended it.
bool Hub::wait(std::vector<pollfd>* polled, bool relieved, timespec moment) {
  const size_t own = polled->size();
  const bool sleeps = relieved || listen_asleep(polled);
  timespec limit{};
  const timespec* wait = &limit;
  if (relieved) {
    limit = moment;
  } else if (sleeps) {
    Clock::time_point then;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      then = due();
    }
    if (then == Clock::time_point::max()) {
      wait = nullptr;
    } else {
      limit = until(then);
    }
  }
  const int ready = ppoll(polled->data(), polled->size(), wait, nullptr);
  if (!relieved) wake_up(polled->data() + own);
  return ready >= 0;
}

void Hub::look() {
  for (size_t channel = 0; channel < channels_.size(); ++channel) listen(channel);
  act();
}

// A visitor that sleeps does not look at the time.
bool Hub::overdue() {
  std::lock_guard<std::mutex> lock(mutex_);
  return due() <= Clock::now();
}

bool Hub::finished() {
  std::lock_guard<std::mutex> lock(mutex_);
  return closed() && !has_unsent();
}

bool Hub::has_unsent() const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return channel.fd() >= 0 && channel.has_unsent(); });
}

void Hub::serve() {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  visits_.fetch_add(1);
  look();
  sent_by_visitor();  // the visitor may not come back, and the thread does not wait for room
}

bool Hub::listen_asleep(std::vector<pollfd>* polled) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool nothing = true;
  for (wire::Channel& channel : channels_) {
    polled->push_back({channel.fd(), channel.polled_events(true), 0});
    nothing &= channel.begin_sleep() || channel.fd() < 0;
  }
  return nothing;
}

void Hub::wake_up(const pollfd* polled) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (wire::Channel& channel : channels_) channel.end_sleep((polled++)->revents != 0);
}

void Hub::listen(size_t index) {
  wire::Channel& channel = channels_[index];
  if (channel.fd() < 0) return;
  channel.flush();
  const uint8_t* data = nullptr;
  size_t size = 0;
  for (;;) {
    switch (channel.receive(&data, &size)) {
      case wire::Channel::Received::kNothing:
        if (channel.take_bell()) channel.flush();
        return;
      case wire::Channel::Received::kClosed:
        channel.close();
        return lost(index);
      case wire::Channel::Received::kForged:
        channel.close();
        abort_->raise(wire::forged("the control connection to rank " + std::to_string(rank_at(index))));
        return;
      case wire::Channel::Received::kFrame:
        if (index > 0) frames_received_.fetch_add(1, std::memory_order_relaxed);
        received(index, data, size);
    }
  }
}

void Hub::send(size_t index, const std::vector<uint8_t>& frame) {
  wire::Channel& channel = channels_[index];
  if (channel.fd() < 0) return;
  if (index > 0) frames_sent_.fetch_add(1, std::memory_order_relaxed);
  sent_ = true;
  channel.send(frame);  // a broken connection is the watch's business
}

}  // namespace hvd
