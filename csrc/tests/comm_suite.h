// Ranks as threads on every transport, and buffers cut into pieces: what the communicators' tests are made
// of.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/integer_types.h"
#include "base/not_copied.h"
#include "comm/mpi/calls.h"
#include "comm/shm/heap.h"
#include "comm/transport.h"
#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/fake_mpi.h"

namespace suite {

using hvd::Communicator;
using hvd::DataType;
using hvd::Piece;
using hvd::Pieces;
using hvd::Reduction;
using hvd::Status;
using hvd::Transport;
using Bytes = std::vector<std::byte>;

// A quick generator (a Weyl sequence, mixed): under a sanitizer, making the data would otherwise take most of
// the time.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
    return x ^ (x >> 32);
  }

 private:
  uint64_t state_;
};

inline size_t pick(Random& random, size_t limit) { return static_cast<size_t>(random() % limit); }

// Some of `size` ranks: each is left out once in `odds` times.
inline std::vector<int> random_members(Random& random, int size, size_t odds) {
  std::vector<int> members;
  for (int rank = 0; rank < size; ++rank) {
    if (pick(random, odds) > 0) members.push_back(rank);
  }
  return members;
}

// ---- ranks

// kSecure: encrypted TCP; kStreams and kSecureStreams: three and two connections between two ranks
enum class Kind { kShm, kUnix, kTcp, kSecure, kStreams, kSecureStreams, kMpi };
constexpr Kind kKinds[] = {Kind::kShm,     Kind::kUnix,          Kind::kTcp, Kind::kSecure,
                           Kind::kStreams, Kind::kSecureStreams, Kind::kMpi};
constexpr int streams_of(Kind kind) {
  return kind == Kind::kStreams ? 3 : kind == Kind::kSecureStreams ? 2 : 1;
}

// Connects the two through a listener at `address`, whatever its port.
template <class Address>
void connect_through(Address address, int pair[2]) {
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  int listener = socket(generic->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(listener, generic, length) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, generic, &length) == 0);
  pair[0] = socket(generic->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(connect(pair[0], generic, length) == 0);
  pair[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  CHECK(pair[1] >= 0);
  close(listener);
}

inline void connect_pair(Kind kind, int pair[2]) {
  if (kind == Kind::kUnix) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    return;
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect_through(address, pair);
}

inline std::shared_ptr<void> map_shared(size_t bytes, int file = -1) {
  const int kind = file < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | kind, file, 0);
  CHECK(memory != MAP_FAILED);
  return {memory, [bytes](void* address) { munmap(address, bytes); }};
}

// The channel between `size` ranks of this process, each with its own abort signal.
class World : hvd::NotCopied {
 public:
  World(Kind kind, int size) : size_(size) {
    for (int i = 0; i < size; ++i) aborts_.push_back(std::make_unique<hvd::AbortSignal>());
    if (kind == Kind::kShm) {
      memory_ = map_shared(hvd::shm_bytes(size));
      const size_t each = 16 << 20;
      heap_bytes_ = each * static_cast<size_t>(size);
      heap_file_ = memfd_create("hvd-test", MFD_CLOEXEC);
      CHECK(ftruncate(heap_file_, static_cast<off_t>(heap_bytes_)) == 0);
      auto heap = map_heap();
      for (int i = 0; i < size; ++i) {
        heaps_.push_back(std::make_shared<hvd::SharedHeap>(heap, heap_file_, heap.get(), each, size, i));
        transports_.push_back(hvd::make_shm_transport(memory_.get(), i, size, *aborts_[i], heaps_[i]));
      }
      return;
    }
    if (kind == Kind::kMpi) {
      fake_mpi::reset();
      for (int i = 0; i < size; ++i) {
        // Both widths of handles have their turn.
        hvd_mpi mpi = size % 2 == 0 ? fake_mpi::table<void*>(i) : fake_mpi::table<int>(i);
        transports_.push_back(hvd::make_mpi_transport(hvd::make_mpi_calls(mpi), i, size, *aborts_[i]));
      }
      return;
    }
    const int streams = streams_of(kind);
    std::vector<std::vector<int>> mesh(size, std::vector<int>(size * streams, -1));
    for (int stream = 0; stream < streams; ++stream) {
      for (int i = 0; i < size; ++i) {
        for (int j = i + 1; j < size; ++j) {
          int pair[2];
          connect_pair(kind, pair);
          mesh[i][stream * size + j] = pair[0];
          mesh[j][stream * size + i] = pair[1];
        }
      }
    }
    const bool secure = kind == Kind::kSecure || kind == Kind::kSecureStreams;
    for (int i = 0; i < size; ++i) {
      // Any keys will do if both ends have the same: from i to j it is "i j", and the stream.
      std::vector<hvd::LinkKeys> keys(secure ? mesh[i].size() : 0);
      for (size_t entry = 0; entry < keys.size(); ++entry) {
        const auto j = static_cast<uint8_t>(entry % mesh.size()),
                   stream = static_cast<uint8_t>(entry / mesh.size());
        keys[entry].send = {static_cast<uint8_t>(i), j, stream};
        keys[entry].receive = {j, static_cast<uint8_t>(i), stream};
      }
      transports_.push_back(hvd::make_tcp_transport(mesh[i], i, *aborts_[i], keys, streams));
    }
  }

  ~World() {
    if (heap_file_ >= 0) close(heap_file_);
  }

  Transport& transport(int rank) { return *transports_[rank]; }
  hvd::AbortSignal& abort(int rank) { return *aborts_[rank]; }
  // Where the rank's tensors may be; null if the transport knows none.
  hvd::SharedHeap* heap(int rank) { return heaps_.empty() ? nullptr : heaps_[rank].get(); }
  // The tensors of all ranks, as a process sees them that has its own mapping.
  std::shared_ptr<void> map_heap() const { return map_shared(heap_bytes_, heap_file_); }
  std::vector<int> everyone() const {
    std::vector<int> ranks(size_);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  // Closes the rank's end of everything.
  void leave(int rank) { transports_[rank].reset(); }

 private:
  int size_;
  std::shared_ptr<void> memory_;
  int heap_file_ = -1;
  size_t heap_bytes_ = 0;
  std::vector<std::shared_ptr<hvd::SharedHeap>> heaps_;
  std::vector<std::unique_ptr<hvd::AbortSignal>> aborts_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// That of the rank which this thread is: where check_allreduce() has some of its tensors.
inline thread_local hvd::SharedHeap* own_heap = nullptr;

inline void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

// `body` on every rank with the world's communicator.
inline void run_ranks(Kind kind, int size, const std::function<void(Communicator&, Transport&)>& body) {
  World world(kind, size);
  on_threads(size, [&](int rank) {
    auto communicator = world.transport(rank).open(0, world.everyone());
    CHECK(communicator->rank() == rank && communicator->size() == size);
    own_heap = world.heap(rank);
    body(*communicator, world.transport(rank));
  });
}

// ---- data

// Values for which no operation overflows or gives a NaN, with as many mantissa bits as the type has.
inline Bytes values(DataType type, size_t count, uint64_t seed) {
  Random random(seed);
  Bytes bytes(count * hvd::size_of(type));
  auto fill = [&](auto example, auto draw) {
    using Value = decltype(example);
    for (size_t i = 0; i < bytes.size(); i += sizeof(Value)) {
      auto value = static_cast<Value>(draw());
      std::memcpy(&bytes[i], &value, sizeof value);
    }
  };
  auto small = [&] { return static_cast<int>(random() % 7) - 3; };
  auto real = [&] { return static_cast<double>(random() >> 12) * 0x1p-50 - 2; };  // in [-2, 2)
  switch (type) {
    default:
      hvd::with_integer_type(type, [&](auto zero) {
        fill(zero,
             [&] { return std::is_signed_v<decltype(zero)> ? small() : static_cast<int>(random() % 4); });
      });
      break;
    // Sign, an exponent of -1 to 1, any mantissa.
    case DataType::kFloat16:
      fill(uint16_t(), [&] { return (random() & 0x83ff) | (14 + random() % 3) << 10; });
      break;
    case DataType::kBfloat16:
      fill(uint16_t(), [&] { return (random() & 0x807f) | (126 + random() % 3) << 7; });
      break;
    case DataType::kFloat32:
    case DataType::kComplex64:
      fill(float(), real);
      break;
    case DataType::kFloat64:
    case DataType::kComplex128:
      fill(double(), real);
      break;
    case DataType::kBool:
      fill(uint8_t(), [&] { return random() % 2; });
      break;
  }
  return bytes;
}

inline Bytes noise(size_t bytes, uint64_t seed) {
  Bytes result(bytes);
  Random random(seed);
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = random();
    std::memcpy(&result[i], &word, std::min<size_t>(8, bytes - i));
  }
  return result;
}

// What a reduction over all ranks' inputs must give: one call of the kernel.
inline Bytes reduced(const Reduction& reduction, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  hvd::kernels::reduce(reduction, result.data(), nullptr, sources.data(), static_cast<int>(sources.size()),
                       result.size() / hvd::size_of(reduction.type));
  return result;
}

// ---- pieces

// Lengths that add up to `bytes`, in units of `element`: sometimes one piece, sometimes many, some empty.
inline std::vector<size_t> cut(Random& random, size_t bytes, size_t element) {
  std::vector<size_t> lengths;
  size_t left = bytes / element, most = left;
  if (pick(random, 3) > 0) most = 1 + left / (1 + pick(random, 200));
  while (left > 0) {
    size_t length = std::min(left, 1 + pick(random, most));
    lengths.push_back(length * element);
    left -= length;
    if (pick(random, 8) == 0) lengths.push_back(0);
  }
  return lengths;
}

// Memory in pieces with gaps between them that nobody may write to.
class Buffer {
 public:
  // `heap`, unless null, has the memory.
  Buffer(const std::vector<size_t>& lengths, size_t element, hvd::SharedHeap* heap = nullptr) {
    size_t gap = element * (64 / element);
    size_t total = gap;
    for (size_t length : lengths) total += length + gap;
    total_ = total;
    auto* block = static_cast<std::byte*>(heap == nullptr ? nullptr : heap->allocate(total));
    if (block == nullptr) {
      memory_.reset(new std::byte[total], std::default_delete<std::byte[]>());
    } else {
      memory_.reset(block, hvd::SharedHeap::free);
    }
    std::memset(memory_.get(), static_cast<int>(kGuard), total);
    size_t offset = gap;
    for (size_t length : lengths) {
      pieces_.push_back({memory_.get() + offset, length});
      offset += length + gap;
    }
  }
  Buffer(const std::vector<size_t>& lengths, size_t element, const Bytes& content,
         hvd::SharedHeap* heap = nullptr)
      : Buffer(lengths, element, heap) {
    size_t offset = 0;
    for (Piece& piece : pieces_) {
      if (piece.bytes > 0) std::memcpy(piece.data, content.data() + offset, piece.bytes);
      offset += piece.bytes;
    }
    CHECK(offset == content.size());
  }

  const Pieces& pieces() const { return pieces_; }

  bool holds(const Bytes& expected) const {
    if (hvd::total_bytes(pieces_) != expected.size()) return false;
    size_t offset = 0;
    const std::byte* gap = memory_.get();
    for (const Piece& piece : pieces_) {
      const auto* data = static_cast<const std::byte*>(piece.data);
      for (; gap < data; ++gap) {
        if (*gap != kGuard) return false;
      }
      if (piece.bytes > 0 && std::memcmp(data, expected.data() + offset, piece.bytes) != 0) return false;
      offset += piece.bytes;
      gap = data + piece.bytes;
    }
    for (; gap < memory_.get() + total_; ++gap) {
      if (*gap != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::byte kGuard{0xa5};
  size_t total_ = 0;
  std::shared_ptr<std::byte> memory_;
  Pieces pieces_;
};

inline Buffer contiguous(const Bytes& content) { return Buffer({content.size()}, 16, content); }

}  // namespace suite
