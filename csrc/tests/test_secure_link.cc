// Encrypted connections: what arrives is what was sent, nothing of it can be seen on the way, and nothing
// else passes.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <random>
#include <set>

#include "check.h"
#include "comm/tcp/secure_link.h"
#include "plain_keys.h"

using namespace hvd;
using Bytes = std::vector<uint8_t>;

namespace {

constexpr auto keys = plain_keys<LinkKeys>;

// A transfer over some memory.
struct Span {
  explicit Span(Bytes& bytes)
      : pieces{{bytes.data(), bytes.size()}}, cursor(pieces), transfer{&cursor, bytes.size()} {}
  Pieces pieces;
  Cursor cursor;
  Transfer transfer;
};

// What goes over the line when `text` is sent in transfers of these sizes.
Bytes sealed(SecureLink& link, Bytes text, const std::vector<size_t>& transfers) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
  Span all(text);
  Bytes line;
  for (size_t bytes : transfers) {
    Transfer transfer{&all.cursor, bytes};
    while (transfer.bytes > 0 || link.has_unsent()) {
      if (!link.has_unsent()) CHECK(link.seal(transfer));
      CHECK(link.send(pair[0]) > 0 || errno == EAGAIN);
      uint8_t buffer[1 << 16];
      ssize_t got = recv(pair[1], buffer, sizeof buffer, 0);
      if (got > 0) line.insert(line.end(), buffer, buffer + got);
    }
  }
  Bytes rest(1 << 20);
  ssize_t got = recv(pair[1], rest.data(), rest.size(), 0);
  if (got > 0) line.insert(line.end(), rest.begin(), rest.begin() + got);
  close(pair[0]);
  close(pair[1]);
  return line;
}

// What comes out of a line's bytes: as many as are wanted, or as many as there are before an error.
Bytes opened(SecureLink& link, const Bytes& line, size_t wanted, int* error) {
  Bytes text(wanted);
  Span all(text);
  *error = 0;
  size_t written = 0;
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
  if (line.empty()) shutdown(pair[1], SHUT_WR);
  while (all.transfer.bytes > 0) {
    if (written < line.size()) {
      ssize_t sent = send(pair[1], line.data() + written, std::min<size_t>(50000, line.size() - written), 0);
      if (sent > 0) written += static_cast<size_t>(sent);
      if (written == line.size()) shutdown(pair[1], SHUT_WR);
    }
    ssize_t got = link.receive(pair[0], all.transfer);
    if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
    *error = got == 0 ? ECONNRESET : errno;
    break;
  }
  close(pair[0]);
  close(pair[1]);
  text.resize(wanted - all.transfer.bytes);
  return text;
}

Bytes some_text(size_t size) {
  Bytes text(size);
  std::iota(text.begin(), text.end(), uint8_t{0});
  return text;
}

}  // namespace

TEST(what_arrives_is_what_was_sent_and_cannot_be_seen) {
  for (const std::vector<size_t>& transfers :
       {std::vector<size_t>{1}, {100, 200, 3}, {65536, 65537, 1}, {700001, 5}}) {
    SecureLink sender(keys(1, 2)), receiver(keys(2, 1));
    const size_t size = std::accumulate(transfers.begin(), transfers.end(), size_t{0});
    const Bytes text = some_text(size);
    const Bytes line = sealed(sender, text, transfers);
    int error = 0;
    CHECK(opened(receiver, line, size, &error) == text && error == 0);
    const size_t probe = std::min<size_t>(size, 16);
    if (probe == 16)
      CHECK(std::search(line.begin(), line.end(), text.begin(), text.begin() + 16) == line.end());
  }
}

// AES-256-GCM itself: case 14 of its authors' test vectors (McGrew and Viega), whose nonce is that of a first
// record. And no record looks like another one of the same text, in either direction.
TEST(it_is_the_cipher_that_it_is_said_to_be) {
  const Bytes known = {
      16,   0,    0,    0,                                                                             //
      0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18,  //
      0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
  SecureLink sender(keys(0, 1));
  const Bytes line = sealed(sender, Bytes(48), {16, 16, 16});
  CHECK(line.size() == 3 * known.size());
  std::set<Bytes> ciphertexts;
  for (size_t at = 0; at < line.size(); at += known.size()) {
    const auto start = line.begin() + static_cast<ptrdiff_t>(at);
    if (at == 0) CHECK(std::equal(known.begin(), known.end(), start));
    ciphertexts.insert(Bytes(start + 4, start + 20));
  }
  CHECK(ciphertexts.size() == 3);
}

TEST(nothing_else_passes) {
  const Bytes text = some_text(300);
  Bytes line;
  {
    SecureLink sender(keys(1, 2));
    line = sealed(sender, text, {100, 100, 100});
  }
  const size_t record = line.size() / 3;
  auto part = [&](size_t first, size_t count) {
    return Bytes(line.begin() + static_cast<ptrdiff_t>(first * record),
                 line.begin() + static_cast<ptrdiff_t>((first + count) * record));
  };
  auto refuses = [&](const Bytes& bytes, size_t good) {
    SecureLink receiver(keys(2, 1));
    int error = 0;
    Bytes got = opened(receiver, bytes, 300, &error);
    return error != 0 && got == Bytes(text.begin(), text.begin() + static_cast<ptrdiff_t>(good));
  };
  auto join = [](Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  CHECK(refuses(join(part(0, 1), part(0, 2)), 100));  // a record twice
  CHECK(refuses(join(part(0, 1), part(2, 1)), 100));  // one left out
  CHECK(refuses(join(part(1, 1), part(0, 1)), 0));    // another order
  CHECK(refuses(part(0, 2), 200));                    // the end cut off
  for (size_t bit = 0; bit < 8 * record; ++bit) {
    Bytes changed = line;
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ (1u << bit % 8));
    CHECK(refuses(changed, 0));
  }
  SecureLink same(keys(1, 2));  // sent back to where it came from
  int error = 0;
  CHECK(opened(same, line, 300, &error).empty() && error == EBADMSG);
}

// What someone in between can do, at random: a beginning of what was sent may arrive, and nothing else.
TEST(random_changes_do_not_pass) {
  std::mt19937_64 random(1);
  auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  for (int round = 0; round < 3000; ++round) {
    SecureLink sender(keys(1, 2)), receiver(keys(2, 1));
    std::vector<size_t> transfers(1 + below(5));
    for (size_t& bytes : transfers) bytes = 1 + below(2000);
    const size_t size = std::accumulate(transfers.begin(), transfers.end(), size_t{0});
    const Bytes text = some_text(size), line = sealed(sender, text, transfers);
    std::vector<Bytes> records;
    auto next = line.begin();
    for (size_t bytes : transfers) {
      auto end = next + static_cast<ptrdiff_t>(4 + bytes + Cipher::kTagBytes);
      records.emplace_back(next, end);
      next = end;
    }
    const size_t at = below(records.size()), other = below(records.size());
    Bytes& record = records[at];
    const size_t place = below(record.size());
    switch (below(6)) {
      case 0:
        record[place] = static_cast<uint8_t>(record[place] ^ (1u << below(8)));
        break;
      case 1:
        record.resize(place);
        break;
      case 2:
        record.insert(record.begin() + static_cast<ptrdiff_t>(place), 1 + below(9),
                      static_cast<uint8_t>(random()));
        break;
      case 3:
        records.insert(records.begin() + static_cast<ptrdiff_t>(at), Bytes(records[other]));
        break;
      case 4:
        records.erase(records.begin() + static_cast<ptrdiff_t>(at));
        break;
      default:
        std::swap(records[at], records[other]);
    }
    Bytes changed;
    for (const Bytes& each : records) changed.insert(changed.end(), each.begin(), each.end());
    int error = 0;
    const Bytes got = opened(receiver, changed, size, &error);
    CHECK(std::equal(got.begin(), got.end(), text.begin()));
    CHECK(error != 0 || got.size() == size);
    // What comes after all that is wanted is not looked at.
    CHECK(error != 0 || changed.size() >= line.size());
  }
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
