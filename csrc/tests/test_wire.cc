// Frames and their codes: SipHash agrees with OpenSSL, and no frame passes that was not sent just so.
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "check.h"
#include "plain_keys.h"
#include "wire/channel.h"
#include "wire/messages.h"

using namespace hvd::wire;
using Bytes = std::vector<uint8_t>;

namespace {

std::string hex(const Code& code) {
  std::string text;
  for (uint8_t byte : code) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

constexpr auto keys = plain_keys<Keys>;

// The bytes of some frames as a channel sends them, and an end that is to receive them.
struct Line {
  Line() {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    Keys mine = keys(2, 1);
    receiver = Channel(pair[0], &mine);
    fd = pair[1];
  }
  ~Line() { close(fd); }
  static std::vector<Bytes> frames(int count) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    Keys mine = keys(1, 2);
    Channel sender(pair[0], &mine);
    std::vector<Bytes> sent;
    for (int i = 0; i < count; ++i) {
      CHECK(sender.send(encode_abort(hvd::Status::unknown("because").blame(3))));
      Bytes bytes(1000);
      bytes.resize(static_cast<size_t>(read(pair[1], bytes.data(), bytes.size())));
      sent.push_back(bytes);
    }
    close(pair[1]);
    return sent;
  }
  // How many frames come out of these bytes, and what the channel says then.
  int feed(const Bytes& bytes, Channel::Received* after) {
    CHECK(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    const uint8_t* data = nullptr;
    size_t size = 0;
    int count = 0;
    while ((*after = receiver.receive(&data, &size)) == Channel::Received::kFrame) ++count;
    return count;
  }
  Channel receiver;
  int fd = -1;
};

Bytes together(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

// Made with OpenSSL (openssl mac ... SIPHASH, size 16): key 00 01 .. 0f, message 00 01 .. n-1.
TEST(siphash_agrees_with_openssl) {
  Key key;
  Bytes message(64);
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i);
  const std::pair<size_t, const char*> known[] = {
      {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
      {2, "8177228da4a45dc7fca38bdef60affe4"},  {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},
      {8, "3b62a9ba6258f5610f83e264f31497b4"},  {9, "264499060ad9baabc47f8b02bb6d71ed"},
      {15, "5493e99933b0a8117e08ec0f97cfc3d9"}, {16, "6ee2a4ca67b054bbfd3315bf85230577"},
      {63, "5150d1772f50834a503e069a973fbd7c"},
  };
  for (auto [size, code] : known) CHECK(hex(SipHash(key).finish(message.data(), size)) == code);
  uint64_t first = 0;
  std::memcpy(&first, message.data(), sizeof first);
  SipHash in_parts(key);
  in_parts.word(first);
  CHECK(hex(in_parts.finish(message.data() + 8, 55)) == hex(SipHash(key).finish(message.data(), 63)));
}

TEST(frames_with_codes_arrive) {
  std::vector<Bytes> sent = Line::frames(3);
  Channel::Received after;
  Line line;
  CHECK(line.feed(together({sent[0], sent[1], sent[2]}), &after) == 3);
  CHECK(after == Channel::Received::kNothing);
}

TEST(no_changed_bit_passes) {
  std::vector<Bytes> sent = Line::frames(2);
  for (size_t bit = 0; bit < 8 * sent[0].size(); ++bit) {
    Bytes changed = sent[0];
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ (1u << bit % 8));
    Line line;
    Channel::Received after;
    CHECK(line.feed(changed, &after) == 0);
    // A longer length waits for more; what then comes is not what belongs there.
    for (int i = 0; i < 64 && after == Channel::Received::kNothing; ++i)
      CHECK(line.feed(together({sent[1], sent[1], sent[1], sent[1]}), &after) == 0);
    const bool promises_more = bit >= 12 && bit < 32 && after == Channel::Received::kNothing;
    CHECK(after == Channel::Received::kForged || promises_more);
  }
}

TEST(replays_gaps_and_other_orders_do_not_pass) {
  std::vector<Bytes> sent = Line::frames(3);
  struct {
    Bytes bytes;
    int pass;
  } const cases[] = {{together({sent[0], sent[0]}), 1},
                     {together({sent[0], sent[2]}), 1},
                     {together({sent[1], sent[0]}), 0},
                     {sent[2], 0}};
  for (const auto& each : cases) {
    Line line;
    Channel::Received after;
    CHECK(line.feed(each.bytes, &after) == each.pass);
    CHECK(after == Channel::Received::kForged);
    CHECK(line.feed(sent[0], &after) == 0 && after == Channel::Received::kForged);  // it stays so
  }
}

TEST(a_frame_cannot_be_sent_back) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  Keys mine = keys(1, 2);
  Channel sender(pair[0], &mine);
  CHECK(sender.send(encode_abort(hvd::Status::unknown("because").blame(3))));
  Bytes bytes(1000);
  ssize_t got = read(pair[1], bytes.data(), bytes.size());
  CHECK(write(pair[1], bytes.data(), static_cast<size_t>(got)) == got);
  const uint8_t* data = nullptr;
  size_t size = 0;
  CHECK(sender.receive(&data, &size) == Channel::Received::kForged);
  close(pair[1]);
}

TEST(an_abort_names_the_rank_at_fault) {
  for (int32_t culprit : {-1, 0, 7})
    for (bool silent : {false, true}) {
      const Bytes frame = encode_abort(hvd::Status::unknown("because").blame(culprit, silent));
      Message message;
      CHECK(decode(frame.data() + 4, frame.size() - 4, &message));
      CHECK(message.text == "because" && message.culprit == culprit && message.silent == silent);
    }
  const Bytes frame = encode_abort(hvd::Status::unknown("because").blame(-2));
  Message message;
  CHECK(!decode(frame.data() + 4, frame.size() - 4, &message));
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
