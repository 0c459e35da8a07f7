// Control frames through shared memory: nothing is lost, doubled or mixed up, and nobody sleeps for ever.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "wire/channel.h"
#include "wire/ring.h"

using hvd::wire::Channel;
using hvd::wire::Ring;
using hvd::wire::RingEnd;

namespace {

struct Ends {
  Ends() : rings(hvd::wire::make_control_rings(2)) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    one = Channel(pair[0]);
    other = Channel(pair[1]);
    one.use(RingEnd::of_hub(*rings, 1, 0));
    other.use(RingEnd::of_rank(*rings, 1, 0));
  }
  std::shared_ptr<hvd::wire::ControlRings> rings;
  Channel one, other;
};

// Number `number`, of a length and content that follow from it.
std::vector<uint8_t> frame(uint32_t number) {
  std::mt19937 random(number);
  const uint32_t size = random() % 8 == 0 ? random() % (3 * Ring::kBytes) : random() % 100 + 4;
  std::vector<uint8_t> bytes(sizeof size + size);
  std::memcpy(bytes.data(), &size, sizeof size);
  for (size_t i = sizeof size; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random());
  return bytes;
}

std::vector<uint8_t> small_frame() { return {4, 0, 0, 0, 1, 2, 3, 4}; }

// Sleeps until the other end has rung, as the engine does. A lost bell ends the test.
void sleep_until_rung(Channel& channel, short events) {
  pollfd polled{channel.fd(), events, 0};
  const bool sleeps = channel.begin_sleep();
  const int ready = poll(&polled, 1, sleeps ? 20000 : 0);
  channel.end_sleep(ready > 0);
  CHECK(ready > 0 || !sleeps);
}

void sleep(Channel& channel) {
  channel.flush();
  sleep_until_rung(channel, channel.polled_events(true));
}

// Sends and expects `count` frames, sleeping whenever there is nothing to do.
void talk(Channel& channel, uint32_t first_sent, uint32_t first_expected, uint32_t count) {
  std::mt19937 random(first_sent);
  uint32_t sent = 0, received = 0;
  while (sent < count || received < count || channel.has_unsent()) {
    if (sent < count && !channel.has_unsent()) CHECK(channel.send(frame(first_sent + sent++)));
    const uint8_t* data = nullptr;
    size_t size = 0;
    const Channel::Received got = channel.receive(&data, &size);
    CHECK(got == Channel::Received::kFrame || got == Channel::Received::kNothing);
    if (got == Channel::Received::kFrame) {
      const std::vector<uint8_t> expected = frame(first_expected + received++);
      CHECK(size == expected.size() - 4 && std::memcmp(data, expected.data() + 4, size) == 0);
    } else {
      if (channel.take_bell()) channel.flush();
      const bool waits = sent == count || channel.has_unsent();
      if (waits && (received < count || channel.has_unsent())) sleep(channel);
    }
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
}

}  // namespace

TEST(frames_of_any_size_pass_in_both_directions) {
  Ends ends;
  constexpr uint32_t kCount = 5000;
  std::thread thread([&] { talk(ends.other, 1000000, 0, kCount); });
  talk(ends.one, 0, 1000000, kCount);
  thread.join();
}

TEST(a_sleeper_wakes_when_the_other_end_is_gone_and_hears_what_it_said_last) {
  Ends ends;
  CHECK(ends.other.send(small_frame()) && ends.other.send(small_frame()));
  ends.other = Channel();
  const uint8_t* data = nullptr;
  size_t size = 0;
  CHECK(ends.one.receive(&data, &size) == Channel::Received::kFrame);
  CHECK(ends.one.receive(&data, &size) == Channel::Received::kFrame);
  CHECK(ends.one.receive(&data, &size) == Channel::Received::kNothing);
  sleep(ends.one);
  CHECK(ends.one.receive(&data, &size) == Channel::Received::kClosed);
}

TEST(who_does_not_sleep_is_not_rung_for) {
  Ends ends;
  for (uint32_t i = 0; i < 100; ++i) CHECK(ends.one.send(small_frame()));
  uint8_t bell = 0;
  CHECK(recv(ends.other.fd(), &bell, 1, MSG_DONTWAIT) < 0);
  CHECK(!ends.other.begin_sleep());  // there is something
  ends.one.send(small_frame());
  CHECK(recv(ends.other.fd(), &bell, 1, MSG_DONTWAIT) == 1);
  ends.other.end_sleep(true);
}

// A rank that submits much while the hub has not come to run would make a system call for each frame.
TEST(nobody_rings_again_before_the_bell_is_heard) {
  Ends ends;
  const uint8_t* data = nullptr;
  size_t size = 0;
  for (int round = 0; round < 3; ++round) {
    CHECK(ends.other.begin_sleep());
    for (int i = 0; i < 100; ++i) CHECK(ends.one.send(small_frame()));
    uint8_t bells[2];
    CHECK(recv(ends.other.fd(), bells, sizeof bells, MSG_DONTWAIT | MSG_PEEK) == 1);
    ends.other.end_sleep(true);
    for (int i = 0; i < 100; ++i) CHECK(ends.other.receive(&data, &size) == Channel::Received::kFrame);
    CHECK(ends.other.receive(&data, &size) == Channel::Received::kNothing);
  }
}

// Which was then never heard: the other end would sleep until somebody else woke it.
TEST(a_bell_that_could_not_be_rung_is_rung_again) {
  Ends ends;
  CHECK(ends.other.begin_sleep());
  const std::vector<uint8_t> some(4096);
  while (::send(ends.one.fd(), some.data(), some.size(), MSG_DONTWAIT) > 0) {  // until there is no room
  }
  CHECK(ends.one.send(small_frame()));
  std::vector<uint8_t> taken(1 << 20);
  while (recv(ends.other.fd(), taken.data(), taken.size(), MSG_DONTWAIT) > 0) {
  }
  CHECK(ends.one.send(small_frame()));
  CHECK(recv(ends.other.fd(), taken.data(), taken.size(), MSG_DONTWAIT) == 1);
  ends.other.end_sleep(true);
}

TEST(two_sleepers_are_both_woken) {
  Ends ends;
  auto listen = [&] { sleep_until_rung(ends.other, POLLIN); };  // only one of them may send
  std::thread first(listen), second(listen);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(ends.one.send(small_frame()));
  first.join();
  second.join();
}

TEST(numbers_that_another_process_has_spoilt_are_survived) {
  Ends ends;
  RingEnd end = RingEnd::of_hub(*ends.rings, 1, 0);
  end.in->written = ~0ull;  // more than there can be
  const uint8_t* data = nullptr;
  size_t size = 0;
  for (int i = 0; i < 100; ++i) ends.one.receive(&data, &size);  // zeros are frames without content
  end.out->read = 5;
  CHECK(ends.one.send(small_frame()));
  CHECK(ends.one.has_unsent());  // there is no room, as far as it can tell
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
