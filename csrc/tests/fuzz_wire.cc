// Throws mutated frames at the decoder: fuzz_wire [frames] [seed]. Run it under AddressSanitizer. A frame may
// be refused or accepted, but never crash, never read outside, never make the decoder allocate out of
// proportion to its length. Of frames with codes, nothing may come out but what was sent, in that order.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <random>

#include "check.h"
#include "wire/channel.h"
#include "wire/messages.h"

namespace {

size_t allocated = 0;

}  // namespace

// Not inlined: the compiler would see malloc and delete meet, and warn.
__attribute__((noinline)) void* operator new(size_t bytes) {
  allocated += bytes;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using namespace hvd::wire;
using Random = std::mt19937_64;
using Frame = std::vector<uint8_t>;

size_t below(Random& random, size_t limit) { return random() % limit; }

std::string some_text(Random& random) {
  return std::string(below(random, 20), static_cast<char>('a' + below(random, 26)));
}

Request some_request(Random& random) {
  Request request;
  request.kind = static_cast<int32_t>(below(random, HVD_REMOVE_PROCESS_SET + 1));
  request.op = static_cast<hvd::ReduceOp>(below(random, 6));
  request.name = some_text(random);
  request.tensors.resize(below(random, 4));
  for (TensorInfo& tensor : request.tensors) {
    tensor.type = static_cast<hvd::DataType>(below(random, hvd::kDataTypes));
    tensor.shape.assign(below(random, 4), static_cast<int64_t>(random()));
  }
  request.numbers.assign(below(random, 5), static_cast<int32_t>(random()));
  return request;
}

Message some_message(Random& random) {
  Message message;
  constexpr MessageType kLater[] = {MessageType::kClock, MessageType::kProgress, MessageType::kStacks,
                                    MessageType::kDump,  MessageType::kTuning,   MessageType::kVotes};
  const size_t type = 1 + below(random, 12 + std::size(kLater));
  message.type = type <= 12 ? static_cast<MessageType>(type) : kLater[type - 13];
  const ClockOffset root{static_cast<int64_t>(random()), random(), below(random, 2) == 1};
  message.clock = {static_cast<int64_t>(random()), static_cast<int64_t>(random()), 7, root};
  message.progress.resize(below(random, 4));
  for (RankProgress& each : message.progress) {
    each.rank = static_cast<int32_t>(random());
    each.progress.steps = random();
    each.progress.step_ns = random();
    each.progress.name = some_text(random);
    each.progress.root = root;
  }
  message.how = static_cast<uint8_t>(random());
  message.choices.assign(below(random, 9), static_cast<uint8_t>(random()));
  message.id = static_cast<uint32_t>(random());
  message.text = some_text(random);
  message.silent = below(random, 2) == 1;
  message.culprit = static_cast<int32_t>(below(random, 5)) - 1;
  message.request = some_request(random);
  message.votes.resize(below(random, 4));
  for (Vote& vote : message.votes) {
    vote.id = static_cast<uint32_t>(below(random, 2));
    if (vote.id == 0) vote.request = some_request(random);
    vote.waited_ns = random() >> 2;
  }
  message.operation.text = some_text(random);
  message.operation.name = some_text(random);
  message.operation.report = below(random, 2) == 1;
  message.operation.items.resize(below(random, 4));
  for (Item& item : message.operation.items) {
    item.cached_id = static_cast<uint32_t>(below(random, 2));
    if (item.cached_id != 0) continue;
    Agreement agreement;
    agreement.id = static_cast<uint32_t>(random());
    agreement.common = some_request(random);
    agreement.first_dims.assign(below(random, 3), {1, 2, 3});
    agreement.columns.assign(below(random, 3), {1, {4, 5}});
    item.fresh = agreement;
  }
  return message;
}

void mutate(Frame& frame, Random& random) {
  for (size_t changes = 1 + below(random, 4); changes > 0 && !frame.empty(); --changes) {
    size_t at = below(random, frame.size());
    switch (below(random, 6)) {
      case 0:
        frame[at] ^= static_cast<uint8_t>(1u << below(random, 8));
        break;
      case 1:
        frame[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        frame.resize(at);
        break;
      case 3:
        frame.insert(frame.begin() + static_cast<ptrdiff_t>(at), 1 + below(random, 9),
                     static_cast<uint8_t>(random()));
        break;
      case 4:  // a length that promises too much
        for (size_t i = at; i < frame.size() && i < at + 4; ++i) frame[i] = 0xFF;
        break;
      default:
        frame.erase(frame.begin() + static_cast<ptrdiff_t>(at));
    }
  }
}

// Everything the program does with a frame that came from outside. Returns whether it was accepted.
bool feed(const Frame& body) {
  // An exact copy on the heap, so that the sanitizer sees a read past the end.
  std::vector<uint8_t> exact(body);
  allocated = 0;
  Message message;
  bool accepted = decode(exact.data(), exact.size(), &message);
  CHECK(allocated <= 4096 + 128 * exact.size());
  std::vector<int32_t> ranks;
  const uint8_t* inner = nullptr;
  size_t inner_size = 0;
  if (unwrap(exact.data(), exact.size(), &ranks, &inner, &inner_size)) {
    Frame again = wrap(type_of(exact.data(), exact.size()), ranks, inner, inner_size);
    CHECK(!accepted && Frame(again.begin() + 4, again.end()) == exact);
    return feed(Frame(inner, inner + inner_size));
  }
  if (accepted) {
    Frame again = encode(message);
    CHECK(Frame(again.begin() + 4, again.end()) == exact);
  }
  return accepted;
}

// The channel in front of the decoder, with lengths that lie and frames in pieces.
void feed_channel(Random& random, size_t frames) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  Channel channel(pair[0]);
  bool open = true;
  for (size_t i = 0; i < frames && open; ++i) {
    Frame frame = encode(some_message(random));
    if (below(random, 50) == 0) mutate(frame, random);
    size_t cut = below(random, frame.size() + 1);
    for (auto [from, to] : {std::pair{size_t{0}, cut}, std::pair{cut, frame.size()}}) {
      if (from == to) continue;
      CHECK(write(pair[1], frame.data() + from, to - from) == static_cast<ssize_t>(to - from));
      const uint8_t* data = nullptr;
      size_t size = 0;
      Channel::Received received;
      while ((received = channel.receive(&data, &size)) == Channel::Received::kFrame) {
        Message message;
        decode(data, size, &message);
      }
      open = received != Channel::Received::kClosed;
    }
  }
  close(pair[1]);
}

Keys some_keys(Random& random) {
  Keys keys{};
  for (uint8_t& byte : keys.send) byte = static_cast<uint8_t>(random());
  keys.receive = keys.send;
  return keys;
}

// What someone in between can do to a stream of frames: change, cut, repeat, drop, swap.
void tamper(std::vector<Frame>& frames, Random& random) {
  const size_t at = below(random, frames.size()), other = below(random, frames.size());
  switch (below(random, 5)) {
    case 0:
      frames.insert(frames.begin() + static_cast<ptrdiff_t>(at), frames[other]);
      break;
    case 1:
      frames.erase(frames.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 2:
      std::swap(frames[at], frames[other]);
      break;
    default:
      mutate(frames[at], random);
  }
}

// Frames with codes through someone in between: a beginning of what was sent may arrive, and nothing else.
// Returns how many did.
size_t feed_sealed(Random& random, size_t count) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const Keys keys = some_keys(random);
  std::vector<Frame> plain, sealed;
  {
    Channel sender(pair[0], &keys);
    for (size_t i = 0; i < count; ++i) {
      plain.push_back(encode(some_message(random)));
      CHECK(sender.send(plain.back()));
      Frame bytes(plain.back().size() + sizeof(Code));
      CHECK(read(pair[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
      sealed.push_back(bytes);
    }
  }
  close(pair[1]);
  tamper(sealed, random);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  Channel receiver(pair[0], &keys);
  size_t arrived = 0;
  for (const Frame& frame : sealed) {
    CHECK(write(pair[1], frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
    const uint8_t* data = nullptr;
    size_t size = 0;
    while (receiver.receive(&data, &size) == Channel::Received::kFrame) {
      CHECK(arrived < plain.size());
      CHECK(Frame(data, data + size) == Frame(plain[arrived].begin() + 4, plain[arrived].end()));
      ++arrived;
    }
  }
  close(pair[1]);
  return arrived;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t frames = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  Random random(seed);
  size_t accepted = 0;
  for (size_t i = 0; i < frames; ++i) {
    Frame frame = encode(some_message(random));
    if (below(random, 4) == 0) {
      const std::vector<int32_t> ranks(2 * (1 + below(random, 3)), static_cast<int32_t>(random()));
      frame = wrap(below(random, 2) == 0 ? MessageType::kFrom : MessageType::kTo, ranks, frame.data() + 4,
                   frame.size() - 4);
    }
    Frame body(frame.begin() + 4, frame.end());
    if (i % 16 == 0) {
      CHECK(feed(body));  // unharmed frames are understood
      continue;
    }
    if (i % 16 == 1) {
      for (uint8_t& byte : body) byte = static_cast<uint8_t>(random());
    } else {
      mutate(body, random);
    }
    accepted += feed(body);
  }
  for (size_t i = 0; i < frames / 1000; ++i) feed_channel(random, 20);
  size_t arrived = 0;
  for (size_t i = 0; i < frames / 100; ++i) arrived += feed_sealed(random, 8);
  CHECK(frames < 1000 || arrived > 0);
  std::printf("%zu frames, %zu mutated ones still well-formed\n", frames, accepted);
  std::printf("1 passed, 0 failed\n");
  return 0;
}
