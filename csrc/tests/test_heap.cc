// Memory in which the ranks of a host find each other's tensors, and collectives that work there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "comm/course.h"
#include "comm/shm/heap.h"
#include "tests/check.h"
#include "tests/comm_operations.h"

namespace {

using namespace suite;
using hvd::SharedHeap;
constexpr size_t kPage = SharedHeap::kPage;

// A file, as the ranks have it, and two mappings of it.
struct File {
  int fd = memfd_create("hvd-test", MFD_CLOEXEC);
  explicit File(size_t bytes) : bytes(bytes) { CHECK(ftruncate(fd, static_cast<off_t>(bytes)) == 0); }
  ~File() { close(fd); }
  std::shared_ptr<void> map() const {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    return {memory, [length = bytes](void* address) { munmap(address, length); }};
  }
  const size_t bytes;
};

std::shared_ptr<SharedHeap> heap_of(size_t pages, int ranks, int rank, const File& file) {
  const auto memory = file.map();
  return std::make_shared<SharedHeap>(memory, file.fd, memory.get(), pages * kPage, ranks, rank);
}

// Which way a collective went.
struct Noted final : hvd::Course {
  void phase(hvd::Phase, uint64_t, uint64_t, size_t) override {}
};

}  // namespace

// Blocks never overlap, keep what is in them, and all room comes back: against a list of what there is.
TEST(random_blocks) {
  constexpr size_t kPages = 64;
  const File file(2 * kPages * kPage);
  auto heap = heap_of(kPages, 2, 1, file);
  Random random(7);
  struct Block {
    size_t bytes;
    unsigned char content;
  };
  std::map<unsigned char*, Block> blocks;
  auto pages_of = [](size_t bytes) { return bytes == 0 ? 1 : (bytes + kPage - 1) / kPage; };
  for (int turn = 0; turn < 20000; ++turn) {
    if (pick(random, 2) == 0) {
      const size_t bytes = pick(random, 3) == 0 ? pick(random, 12 * kPage) : pick(random, kPage);
      auto* memory = static_cast<unsigned char*>(heap->allocate(bytes));
      size_t used = 0;
      for (const auto& [begin, block] : blocks) used += pages_of(block.bytes);
      if (memory == nullptr) {
        CHECK(used + pages_of(bytes) > kPages / 2);  // full, or cut into pieces
        continue;
      }
      for (const auto& [begin, block] : blocks)
        CHECK(memory + pages_of(bytes) * kPage <= begin || begin + pages_of(block.bytes) * kPage <= memory);
      const Block block{bytes, static_cast<unsigned char>(random())};
      std::memset(memory, block.content, bytes);
      blocks[memory] = block;
      CHECK(heap->place_of(memory, bytes) != SharedHeap::kNowhere);
      CHECK(heap->place_of(memory, pages_of(bytes) * kPage + 1) == SharedHeap::kNowhere);
    } else if (!blocks.empty()) {
      auto chosen = std::next(blocks.begin(), static_cast<long>(pick(random, blocks.size())));
      for (size_t i = 0; i < chosen->second.bytes; i += 997)
        CHECK(chosen->first[i] == chosen->second.content);
      CHECK(SharedHeap::free(chosen->first));
      CHECK(heap->place_of(chosen->first, 1) == SharedHeap::kNowhere);
      CHECK(!SharedHeap::free(chosen->first));
      blocks.erase(chosen);
    }
  }
  for (const auto& each : blocks) SharedHeap::free(each.first);
  void* everything = heap->allocate(kPages * kPage);
  CHECK(everything != nullptr && heap->allocate(1) == nullptr);
  SharedHeap::free(everything);
  CHECK(heap->allocate(kPages * kPage + 1) == nullptr && heap->allocate(~size_t{0}) == nullptr);
}

TEST(places_mean_the_same_to_all) {
  const File file(4 * kPage);
  auto one = heap_of(2, 2, 0, file), other = heap_of(2, 2, 1, file);
  auto* mine = static_cast<int*>(one->allocate(100));
  auto* yours = static_cast<int*>(other->allocate(100));
  mine[3] = 17;
  yours[3] = 18;
  CHECK(*reinterpret_cast<int*>(other->at(one->place_of(&mine[3], 4), 4)) == 17);
  CHECK(*reinterpret_cast<int*>(one->at(other->place_of(&yours[3], 4), 4)) == 18);
  // Only what is one's own has a place, and only places within the heap are found.
  int elsewhere = 0;
  CHECK(one->place_of(yours, 4) == SharedHeap::kNowhere);
  CHECK(one->place_of(&elsewhere, 4) == SharedHeap::kNowhere);
  CHECK(one->at(4 * kPage - 4, 4) != nullptr && one->at(4 * kPage - 4, 5) == nullptr);
  CHECK(one->at(SharedHeap::kNowhere, 4) == nullptr);
  CHECK(SharedHeap::free(mine) && SharedHeap::free(yours) && !SharedHeap::free(&elsewhere));
}

TEST(a_rank_that_could_not_map_it_has_nothing_there) {
  SharedHeap heap(nullptr, -1, nullptr, kPage, 2, 0);
  int elsewhere = 0;
  CHECK(heap.allocate(1) == nullptr && heap.at(0, 1) == nullptr);
  CHECK(heap.place_of(&elsewhere, 4) == SharedHeap::kNowhere);
}

TEST(freed_memory_goes_back_to_the_system) {
  const File file(kPage * 2048);
  auto heap = heap_of(2048, 1, 0, file);
  struct stat before{}, full{}, after{};
  CHECK(fstat(file.fd, &before) == 0);
  void* block = heap->allocate(1000 * kPage);
  std::memset(block, 1, 1000 * kPage);
  CHECK(fstat(file.fd, &full) == 0 && full.st_blocks - before.st_blocks >= 1000 * long{kPage} / 512);
  SharedHeap::free(block);
  CHECK(fstat(file.fd, &after) == 0 && after.st_blocks == before.st_blocks);
}

// That of much memory takes long.
TEST(freeing_holds_up_nobody_who_asks_for_places) {
  using Clock = std::chrono::steady_clock;
  const File file(8193 * kPage);
  auto heap = heap_of(8193, 1, 0, file);
  void* much = heap->allocate(8192 * kPage);
  void* little = heap->allocate(1);
  CHECK(fallocate(file.fd, 0, 0, 8192 * kPage) == 0);  // all of it is there, untouched
  std::atomic<bool> freed{false};
  Clock::duration freeing{}, longest{};
  std::thread thread([&] {
    const auto begin = Clock::now();
    SharedHeap::free(much);
    freeing = Clock::now() - begin;
    freed = true;
  });
  while (!freed) {
    const auto begin = Clock::now();
    CHECK(heap->place_of(little, 1) != SharedHeap::kNowhere);
    longest = std::max(longest, Clock::now() - begin);
  }
  thread.join();
  CHECK(longest < freeing / 2);
  SharedHeap::free(little);
}

TEST(a_block_outlives_its_heap) {
  const File file(4 * kPage);
  auto heap = heap_of(2, 2, 0, file);
  auto* block = static_cast<int*>(heap->allocate(100));
  heap.reset();
  block[7] = 5;
  CHECK(block[7] == 5 && SharedHeap::free(block));
}

// It would be taken from the parent, whose it is.
TEST(a_forked_child_frees_nothing) {
  const File file(2 * kPage);
  auto heap = heap_of(2, 1, 0, file);
  auto* block = static_cast<int*>(heap->allocate(100));
  block[3] = 7;
  const pid_t child = fork();
  if (child == 0) {
    SharedHeap::forget_all();
    _exit(SharedHeap::free(block) ? 1 : 0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(block[3] == 7 && SharedHeap::free(block));
}

// A peer that has not heard of the failure goes on writing; the owner has taken its tensor back by then.
TEST(what_is_withdrawn_nobody_else_reaches) {
  const File file(16 * kPage);
  auto one = heap_of(8, 2, 0, file), other = heap_of(8, 2, 1, file);
  auto* block = static_cast<unsigned char*>(one->allocate(4 * kPage));
  std::memset(block, 1, 4 * kPage);
  std::byte* seen = other->at(one->place_of(block, 4 * kPage), 4 * kPage);
  // Two pages and a bit of the third, in any order.
  const Pieces first = {{block + kPage + 20, kPage}},
               others = {{block + kPage + 40, 30}, {block + 10, kPage}};
  one->withdraw({&first, &others});
  std::memset(seen, 9, 4 * kPage);
  for (size_t i = 0; i < 3 * kPage; ++i) CHECK(block[i] == 1);
  CHECK(block[3 * kPage] == 9);
  std::memset(block, 2, 4 * kPage);
  CHECK(seen[0] == std::byte{9} && one->place_of(block, 1) == SharedHeap::kNowhere);
  CHECK(one->allocate(1) == nullptr);
  SharedHeap::free(block);
  CHECK(block[0] == 9);  // of its own there is nothing left, only what is in the file
}

// Beside what is withdrawn lies what the application goes on with, on other threads.
TEST(withdrawing_loses_nothing_that_is_written_meanwhile) {
  if (check::kThreadSanitizer) return;  // which takes a new mapping for a write
  for (int turn = 0; turn < 20; ++turn) {
    constexpr size_t kPages = 64, kGap = 128, kSeldom = 64;
    const File file(kPages * kPage);
    auto heap = heap_of(kPages, 1, 0, file);
    auto* block = static_cast<std::byte*>(heap->allocate(kPages * kPage));
    std::memset(block, 1, kPages * kPage);
    // At both ends and in the middle, in pages of which only parts are withdrawn: those of two pieces. What
    // is written there only once must stay, too.
    constexpr size_t kHalf = kPages / 2 * kPage, kOnce = 32 << 10;
    const Pieces pieces = {{block + kGap, kHalf - kGap + 2 * kGap},
                           {block + kHalf + 2 * kGap + kOnce, kHalf - 3 * kGap - kOnce}};
    std::atomic<uint64_t>* const written[] = {
        reinterpret_cast<std::atomic<uint64_t>*>(block),
        reinterpret_cast<std::atomic<uint64_t>*>(block + kHalf + 2 * kGap),
        reinterpret_cast<std::atomic<uint64_t>*>(block + kPages * kPage - kGap)};
    std::atomic<bool> over{false}, begun{false};
    std::thread application([&] {
      uint64_t number = 0;
      while (!over) {
        ++number;
        for (auto* each : written) {
          each->store(number);
          if (number > 1) CHECK(each->load() == number);
        }
        if (number % kSeldom == 0 && number / kSeldom < kOnce / 8) written[1][number / kSeldom].store(number);
        begun = true;
      }
      for (auto* each : written) CHECK(each->load() == number);
      for (size_t i = 1; i <= number / kSeldom && i < kOnce / 8; ++i)
        CHECK(written[1][i].load() == i * kSeldom);
    });
    while (!begun) std::this_thread::yield();
    heap->withdraw({&pieces});
    over = true;
    application.join();
    SharedHeap::free(block);
  }
}

// They are combined where they are only if all members have all of them there.
TEST(allreduce_in_place) {
  for (int size : {2, 3, 5}) {
    run_ranks(Kind::kShm, size, [](Communicator& comm, Transport&) {
      for (size_t bytes : {60u << 10, 64u << 10, 1u << 20}) {
        for (int absent : {-1, 0, comm.size() - 1}) {
          const Bytes content(bytes, std::byte{1});
          Buffer data({bytes / 2, 0, bytes / 2}, 1, content, comm.rank() == absent ? nullptr : own_heap);
          Noted noted;
          CHECK(comm.allreduce({DataType::kUint8, ReduceOp::kSum, 1.0}, data.pieces(), data.pieces()).ok());
          CHECK(data.holds(Bytes(bytes, std::byte(comm.size()))));
          const bool in_place = absent < 0 && bytes >= 64 << 10;
          CHECK((noted.algorithm() == hvd::Algorithm::kInPlace) == in_place);
        }
      }
    });
  }
}

// What lies side by side before need not do so afterwards, and on each rank it is otherwise.
TEST(random_layouts) {
  for (int size : {2, 3}) {
    run_ranks(Kind::kShm, size, [](Communicator& comm, Transport&) {
      constexpr size_t kCount = 5, kLongest = 24 << 10, kRoom = kCount * (kLongest + 64);
      auto* from = static_cast<float*>(own_heap->allocate(kRoom));
      auto* to = static_cast<float*>(own_heap->allocate(kRoom));
      Random shared(3), random(static_cast<uint64_t>(comm.rank()));
      for (int turn = 0; turn < 60; ++turn) {
        std::vector<size_t> lengths;
        for (size_t i = 0; i < kCount; ++i) lengths.push_back(kLongest / 8 * (4 + pick(shared, 5)) / 4);
        std::fill_n(to, kRoom / 4, -1.0f);
        // Gaps here and there, which nobody may touch.
        auto laid_out = [&](float* memory) {
          Pieces pieces;
          for (size_t length : lengths) {
            memory += pick(random, 2) * (1 + pick(random, 16));
            pieces.push_back({memory, length * sizeof(float)});
            memory += length;
          }
          return pieces;
        };
        const Pieces in = laid_out(from), out = pick(random, 4) == 0 ? in : laid_out(to);
        for (size_t i = 0; i < kCount; ++i)
          for (size_t k = 0; k < lengths[i]; ++k)
            static_cast<float*>(in[i].data)[k] = static_cast<float>((i + 1) * (k % 1000)) + comm.rank();
        Noted noted;
        CHECK(comm.allreduce({DataType::kFloat32, ReduceOp::kSum, 1.0}, in, out).ok());
        CHECK(noted.algorithm() == hvd::Algorithm::kInPlace);
        size_t results = 0;
        for (size_t i = 0; i < kCount; ++i)
          for (size_t k = 0; k < lengths[i]; ++k, ++results)
            CHECK(
                static_cast<float*>(out[i].data)[k] ==
                static_cast<float>(comm.size() * (i + 1) * (k % 1000) + comm.size() * (comm.size() - 1) / 2));
        if (out[0].data == in[0].data) results = 0;
        CHECK(static_cast<size_t>(std::count(to, to + kRoom / 4, -1.0f)) == kRoom / 4 - results);
      }
      SharedHeap::free(from);
      SharedHeap::free(to);
    });
  }
}

// More pieces than can be shown: as if they were elsewhere.
TEST(too_many_pieces) {
  run_ranks(Kind::kShm, 2, [](Communicator& comm, Transport&) {
    for (size_t pieces : {1300, 1500}) {
      const std::vector<size_t> lengths(pieces, 64);
      Buffer data(lengths, 1, Bytes(64 * pieces, std::byte{3}), own_heap);
      Noted noted;
      CHECK(comm.allreduce({DataType::kUint8, ReduceOp::kSum, 1.0}, data.pieces(), data.pieces()).ok());
      CHECK(data.holds(Bytes(64 * pieces, std::byte{6})));
      CHECK((noted.algorithm() == hvd::Algorithm::kInPlace) == (pieces == 1300));
    }
  });
}

// A rank that never comes: the others give up, keep what they had, and nobody can write to it afterwards.
TEST(an_abort_takes_tensors_back) {
  World world(Kind::kShm, 3);
  const size_t bytes = 1 << 20;
  std::atomic<int> waiting{0};
  on_threads(3, [&](int rank) {
    auto comm = world.transport(rank).open(0, world.everyone());
    if (rank == 2) {
      while (waiting < 2) usleep(1000);
      usleep(20000);
      for (int peer : {0, 1}) world.abort(peer).raise(hvd::Status::unknown("rank 2 was killed"));
      return;
    }
    Buffer data({bytes}, 1, Bytes(bytes, std::byte{5}), world.heap(rank));
    Buffer result({bytes}, 1, Bytes(bytes, std::byte{6}), world.heap(rank));
    const std::shared_ptr<void> file = world.map_heap();
    std::vector<std::pair<std::byte*, std::byte*>> views;  // here, and in the file
    for (const Buffer* each : {&data, &result}) {
      const uint64_t place = world.heap(rank)->place_of(each->pieces()[0].data, bytes);
      CHECK(place != SharedHeap::kNowhere);
      views.push_back(
          {static_cast<std::byte*>(each->pieces()[0].data), static_cast<std::byte*>(file.get()) + place});
      CHECK(views.back().second[0] == views.back().first[0]);
    }
    ++waiting;
    const hvd::Status status =
        comm->allreduce({DataType::kUint8, ReduceOp::kSum, 1.0}, data.pieces(), result.pieces());
    CHECK(!status.ok() && status.text() == "rank 2 was killed");
    // A peer that does not know of it goes on writing.
    for (const auto& [here, there] : views) {
      CHECK(world.heap(rank)->place_of(here, bytes) == SharedHeap::kNowhere);
      std::memset(there, 9, bytes);
    }
    CHECK(data.holds(Bytes(bytes, std::byte{5})) && result.holds(Bytes(bytes, std::byte{6})));
  });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
