// Meetings: all orders in which ranks can take the steps of coming, looking, leaving and reading, on the word
// that the real ones share; and real threads with delays.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "check.h"
#include "engine/meeting.h"

namespace {

using hvd::Meeting;
using hvd::MeetingWord;
using hvd::Met;

constexpr int kMostRanks = 3;

// What a rank does next.
enum Step : uint8_t {
  kChoose,
  kWrite,
  kCome,
  kCompare,
  kCombine,
  kConclude,
  kLook,
  kTryToLeave,
  kRead,
  kAsk,  // the coordinator: goes on when all have asked for the same operation
  kDone,
};

struct Rank {
  Step step = kChoose;
  uint8_t operation = 0, read = 0, slots = 0;
  bool same = false;
  uint64_t then = 0, seen = 0;
  bool operator<(const Rank& other) const {
    return std::tie(step, operation, read, slots, same, then, seen) <
           std::tie(other.step, other.operation, other.read, other.slots, other.same, other.then, other.seen);
  }
};

struct World {
  uint64_t word = 0;
  std::array<std::array<uint8_t, kMostRanks>, 2> rooms{};  // number of the operation + 1
  uint8_t combined = 0;                                    // the same
  std::array<Rank, kMostRanks> ranks;
  bool operator<(const World& other) const {
    return std::tie(word, rooms, combined, ranks) <
           std::tie(other.word, other.rooms, other.combined, other.ranks);
  }
};

class Explorer {
 public:
  // Rank 0 comes with another operation than the others to number `different`; -1: to none.
  Explorer(int ranks, int operations, int different, bool alternate = true)
      : ranks_(ranks), operations_(operations), different_(different), alternate_(alternate) {}

  // False if something went wrong somewhere.
  bool explore(uint64_t word) {
    World start;
    start.word = word;
    std::vector<World> open{start};
    seen_.insert(start);
    while (!open.empty() && good_) {
      const World world = open.back();
      open.pop_back();
      bool moves = false, over = true;
      for (int rank = 0; rank < ranks_; ++rank) {
        over &= world.ranks[rank].step == kDone;
        for (const World& next : after(world, rank)) {
          moves = true;
          if (seen_.insert(next).second) open.push_back(next);
        }
      }
      if (!moves && !over) good_ = false;  // nobody can go on
    }
    return good_;
  }
  size_t states() const { return seen_.size(); }
  bool agreed() const { return agreed_; }

 private:
  uint32_t id(int rank, int operation) const { return rank == 0 && operation == different_ ? 2 : 1; }

  void end(Rank& rank, bool by_meeting) {
    agreed_ |= by_meeting;
    if (by_meeting && rank.operation == different_) good_ = false;
    rank = {++rank.operation == operations_ ? kDone : kChoose, rank.operation};
  }

  std::vector<World> after(const World& before, int index) {
    std::vector<World> result;
    World world = before;
    Rank& rank = world.ranks[index];
    auto keep = [&] { result.push_back(world); };
    auto concluded = [&](Met met) {
      if (met == Met::kOpen) return false;
      rank.step = met == Met::kAgreed ? kRead : kAsk;
      return true;
    };
    switch (rank.step) {
      case kChoose:
        rank.step = kAsk;
        keep();
        rank.step = kWrite;
        rank.slots = alternate_ ? MeetingWord::agreed(world.word) & 1 : 0;
        keep();
        break;
      case kWrite:
        world.rooms[rank.slots][index] = static_cast<uint8_t>(rank.operation + 1);
        rank.step = kCome;
        keep();
        break;
      case kCome:
        world.word += MeetingWord::kOne;
        rank.then = world.word;
        rank.step = MeetingWord::come(rank.then) == ranks_ ? kCompare : kLook;
        keep();
        break;
      case kCompare:
        rank.same = true;
        for (int other = 0; other < ranks_; ++other)
          rank.same &= id(other, world.rooms[rank.slots][other] - 1) == id(index, rank.operation);
        rank.step = rank.same ? kCombine : kConclude;
        keep();
        break;
      case kCombine:
        world.combined = static_cast<uint8_t>(rank.operation + 1);
        rank.step = kConclude;
        keep();
        break;
      case kConclude:
        if (world.word == rank.then)
          world.word =
              rank.same ? MeetingWord::after_agreeing(rank.then) : MeetingWord::after_parting(rank.then);
        rank.step = kLook;
        keep();
        break;
      case kLook:
        if (concluded(MeetingWord::outcome(rank.then, world.word))) {
          keep();
          break;
        }
        rank.step = kTryToLeave;
        rank.seen = world.word;
        keep();
        break;
      case kTryToLeave:
        if (world.word == rank.seen) {
          world.word = MeetingWord::after_parting(world.word);
          rank.step = kAsk;
        } else {
          rank.step = kLook;
        }
        keep();
        break;
      case kRead:
        if (world.rooms[rank.slots][rank.read] != rank.operation + 1) good_ = false;
        if (world.combined != rank.operation + 1) good_ = false;
        if (++rank.read == ranks_) end(rank, true);
        keep();
        break;
      case kAsk: {
        // Those who are further by a meeting would leave this one waiting for ever.
        for (int other = 0; other < ranks_; ++other)
          if (world.ranks[other].operation > rank.operation && !asked_by_all(world, rank.operation))
            good_ = false;
        if (!asked_by_all(world, rank.operation)) break;
        for (int other = 0; other < ranks_; ++other) end(world.ranks[other], false);
        keep();
        break;
      }
      case kDone:
        break;
    }
    return result;
  }

  bool asked_by_all(const World& world, int operation) const {
    for (int other = 0; other < ranks_; ++other)
      if (world.ranks[other].step != kAsk || world.ranks[other].operation != operation) return false;
    return true;
  }

  const int ranks_, operations_, different_;
  const bool alternate_;
  bool good_ = true, agreed_ = false;
  std::set<World> seen_;
};

// Where numbers wrap around.
const uint64_t kStarts[] = {0, MeetingWord::make(~0u, 0xfffe), MeetingWord::make(~0u, 0xffff)};

}  // namespace

TEST(every_order_of_two_and_three_ranks_ends_with_all_agreed_or_none) {
  size_t states = 0;
  for (uint64_t start : kStarts)
    for (int ranks = 2; ranks <= (check::kThreadSanitizer ? 2 : 3); ++ranks)
      for (int different = -1; different < 3; ++different) {
        Explorer explorer(ranks, ranks == 2 ? 4 : 3, different);
        CHECK(explorer.explore(start));
        CHECK(explorer.agreed());
        states += explorer.states();
      }
  std::printf("%zu states\n", states);
}

TEST(the_explorer_finds_what_goes_wrong_without_alternating_memory) {
  CHECK(!Explorer(2, 3, -1, false).explore(0));
}

TEST(threads_agree_on_the_same_and_read_what_all_came_with) {
  constexpr int kRanks = 3, kOperations = 20000;
  const std::unique_ptr<std::byte[]> raw(new std::byte[Meeting::bytes(kRanks) + 128]());
  auto* memory = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(raw.get()) + 127) / 128 * 128);
  std::atomic<int> asked[kOperations] = {};
  std::atomic<int> ran[kOperations] = {};
  std::atomic<int> agreed{0};
  auto all_reach = [](std::atomic<int>& count) {
    count++;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (count < kRanks) {
      CHECK(std::chrono::steady_clock::now() < limit);
      std::this_thread::yield();
    }
  };
  auto body = [&](int index) {
    Meeting meeting(memory, index, kRanks);
    std::mt19937 random(static_cast<unsigned>(index));
    for (int operation = 0; operation < kOperations; ++operation) {
      const bool different = operation % 97 == 0 && index == 1;
      Met met = Met::kParted;
      if (random() % 16 != 0 && !meeting.somebody_is_away()) {
        meeting.come(
            different ? 2 : 1, static_cast<uint64_t>(operation),
            [&](std::byte* room) {
              const int value = operation * kRanks + index;
              std::memcpy(room, &value, sizeof value);
            },
            [&](std::byte* room) {
              int sum = 0, value = 0;
              for (int other = 0; other < kRanks; ++other) {
                std::memcpy(&value, meeting.room(other), sizeof value);
                sum += value;
              }
              std::memcpy(room, &sum, sizeof sum);
              return operation % 3 != 0;
            });
        const auto patience = random() % 64 == 0 ? 0 : 100000;
        for (int looks = 0; (met = meeting.look()) == Met::kOpen && looks < patience; ++looks) {
          if (meeting.somebody_is_away()) break;
          if (looks % 64 == 63) std::this_thread::yield();
        }
        if (met == Met::kOpen) met = meeting.leave();
      }
      if (met == Met::kAgreed) {
        CHECK(operation % 97 != 0);
        CHECK((meeting.combined() != nullptr) == (operation % 3 != 0));
        if (meeting.combined() != nullptr) {
          int sum = 0;
          std::memcpy(&sum, meeting.combined(), sizeof sum);
          CHECK(sum == operation * kRanks * kRanks + kRanks * (kRanks - 1) / 2);
        }
        for (int other = 0; other < kRanks; ++other) {
          int value = 0;
          std::memcpy(&value, meeting.room(other), sizeof value);
          CHECK(value == operation * kRanks + other);
          CHECK(meeting.since(other) == static_cast<uint64_t>(operation));
        }
        agreed++;
      } else {  // as if the coordinator released it
        meeting.go_away();
        all_reach(asked[operation]);
        meeting.come_back();  // before it ends anywhere
        all_reach(ran[operation]);
      }
      if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    }
  };
  std::vector<std::thread> threads;
  for (int index = 0; index < kRanks; ++index) threads.emplace_back(body, index);
  for (std::thread& thread : threads) thread.join();
  CHECK(agreed % kRanks == 0 && agreed > 0);
  std::printf("agreed in %d of %d\n", agreed / kRanks, kOperations);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
