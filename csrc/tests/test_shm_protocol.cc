// All orders in which ranks can take the steps of the shared-memory protocol.
//
// The programs of the ranks are made by ShmProtocol itself, over a group that notes what is awaited, posted,
// read and written instead of doing it. A program has no branches, so a state of the whole is how far each
// rank has come. Every state that can be reached is visited. In each, what a rank does next must not collide
// with what another may do at the same time, what is read must be what was meant, and somebody must be able
// to go on. (If nothing ever collides, the order of two moves makes no difference to the memory, so one copy
// of it for each state is enough. Posts belong to the move before them and waits to the one after: a rank
// that stops in between can only keep others from moving.)
//
//   test_shm_protocol [name]
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "check.h"
#include "comm/shm/flag.h"
#include "comm/shm/protocol.h"

namespace {

using namespace hvd;

constexpr int kRanks = 3;
constexpr int kGroups = 4;
const std::vector<int> kMembers[kGroups] = {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};

// Memory: slots, then one-shot buffers in staging, then those in the flags.
constexpr int kSlotCells = kRanks * static_cast<int>(kSlots) * kRanks;
constexpr int kOnceCells = kRanks * 2;
constexpr int kInlineCells = kGroups * kRanks * 2;
constexpr int kCells = kSlotCells + kOnceCells + kInlineCells;
int slot_cell(int owner, uint32_t step, int index) {
  return (owner * static_cast<int>(kSlots) + static_cast<int>(step % kSlots)) * kRanks + index;
}
int once_cell(int owner, uint32_t number) { return kSlotCells + owner * 2 + static_cast<int>(number % 2); }
int inline_cell(int group, int owner, uint32_t number) {
  return kSlotCells + kOnceCells + (group * kRanks + owner) * 2 + static_cast<int>(number % 2);
}

struct Await {
  int group, rank;  // whose counter
  Counter counter;
  uint32_t value;
};
struct Post {
  int group;
  Counter counter;
  uint32_t value;
};
struct Access {
  int cell;
  bool write;
  uint32_t value;  // that is written, or must be found
};
struct Move {
  std::vector<Await> awaits;
  std::vector<Access> accesses;
  std::vector<Post> posts;
};
using Program = std::vector<Move>;

// What one rank does, in the making.
class Notes {
 public:
  void await(const Await& what) {
    if (program.empty() || !program.back().accesses.empty() || !program.back().posts.empty())
      program.emplace_back();
    program.back().awaits.push_back(what);
  }
  void access(const Access& what) {
    if (program.empty() || !program.back().posts.empty()) program.emplace_back();
    program.back().accesses.push_back(what);
  }
  void post(const Post& what) {
    if (program.empty()) program.emplace_back();
    program.back().posts.push_back(what);
  }
  Program program;
};

// The protocol as it was: `reduced` and `fetched` (here kFreed) told different things in different
// collectives, and who moves data took `reduced` for a free slot.
enum class Rules { kNow, kOverwritesResults };

// A group for ShmProtocol that notes what it is asked for.
class NotingGroup {
 public:
  NotingGroup(int number, int self, Notes& notes, Rules rules)
      : number_(number), members_(kMembers[number]), notes_(notes), rules_(rules) {
    while (members_[static_cast<size_t>(rank_)] != self) ++rank_;
  }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int member) const { return members_[static_cast<size_t>(member)]; }
  int number() const { return number_; }
  bool await(Counter counter, int member, uint32_t value) {
    if (member == rank_) return true;
    if (rules_ == Rules::kOverwritesResults && counter == kFreed && moves) counter = kReduced;
    notes_.await({number_, world_rank(member), counter, value});
    return true;
  }
  void post(Counter counter, uint32_t value) {
    if (rules_ == Rules::kOverwritesResults && counter == kFreed && moves)
      notes_.post({number_, kReduced, value});
    notes_.post({number_, counter, value});
  }
  void tell_place() {}
  void keep_apart() {}
  Notes& notes() { return notes_; }

  bool moves = false;  // the present collective is not an allreduce

 private:
  const int number_;
  const std::vector<int> members_;
  int rank_ = 0;
  Notes& notes_;
  const Rules rules_;
};

enum class Kind {
  kAllreduce,
  kReducescatter,
  kAllgather,
  kAlltoall,
  kBroadcast,
  kOnce,
  kOnceInline,
  kOnceBroadcast
};

struct Operation {
  Kind kind;
  uint32_t steps;  // none in one-shot exchanges
  int root = 0;    // a rank of the world
  int group = 0;
};

std::string show(const Operation& operation) {
  const char* names[] = {"allreduce", "reducescatter", "allgather",     "alltoall",
                         "broadcast", "once",          "once (inline)", "once (broadcast)"};
  std::string text = names[static_cast<int>(operation.kind)];
  if (operation.steps > 0) text += " of " + std::to_string(operation.steps) + " steps";
  if (operation.kind == Kind::kBroadcast || operation.kind == Kind::kOnceBroadcast)
    text += " from " + std::to_string(operation.root);
  return text + " in group " + std::to_string(operation.group);
}

// One rank of a world whose communicators share its staging memory. What is copied is as in ShmCommunicator.
class NotingRank {
 public:
  NotingRank(int self, Rules rules) {
    for (int number = 0; number < kGroups; ++number) {
      const std::vector<int>& members = kMembers[number];
      bool member = false;
      for (int rank : members) member = member || rank == self;
      groups_[static_cast<size_t>(number)] =
          member ? std::make_shared<NotingGroup>(number, self, notes_, rules) : nullptr;
    }
    for (const auto& group : groups_)
      protocols_.push_back(group ? std::make_unique<ShmProtocol<NotingGroup>>(group, staging_) : nullptr);
  }

  void run(const Operation& operation, uint32_t id) {
    const auto number = static_cast<size_t>(operation.group);
    if (!groups_[number]) return;
    NotingGroup& group = *groups_[number];
    ShmProtocol<NotingGroup>& protocol = *protocols_[number];
    const int size = group.size(), self = group.rank();
    const int root = member_of(group, operation.root);
    group.moves = operation.kind != Kind::kAllreduce;
    // Every value that is ever written is a different one.
    auto value = [&](int kind, int from, uint32_t k) {
      return ((id * 2 + static_cast<uint32_t>(kind)) * kRanks + static_cast<uint32_t>(from)) * 64 + k + 1;
    };
    auto note = [&](bool write, uint32_t step, SubSlot place, uint32_t what) {
      notes_.access({slot_cell(group.world_rank(place.owner), step, place.index), write, what});
    };
    auto publish_parts = [&](uint32_t k, uint32_t step) {
      for (int to = 0; to < size; ++to)
        if (to != self) note(true, step, input_for(self, to), value(0, self, k));
    };
    auto combine = [&](uint32_t k, uint32_t step) {
      for (int from = 0; from < size; ++from)
        if (from != self) note(false, step, input_for(from, self), value(0, from, k));
    };
    auto publish_whole = [&](uint32_t k, uint32_t step) {
      for (int index = 0; index < size; ++index) note(true, step, {self, index}, value(0, self, k));
    };
    auto take_whole = [&](uint32_t k, uint32_t step, int member) {
      for (int index = 0; member != self && index < size; ++index)
        note(false, step, {member, index}, value(0, member, k));
    };
    auto once = [&](bool staged, bool shows, int from) {
      auto cell = [&](int member) {
        const int owner = group.world_rank(member);
        return staged ? once_cell(owner, protocol.number())
                      : inline_cell(group.number(), owner, protocol.number());
      };
      if (shows) {
        CHECK(protocol.begin_showing(staged));
        notes_.access({cell(self), true, value(0, self, 0)});
      } else {
        protocol.begin_listening();
      }
      protocol.show();
      if (from < 0) CHECK(protocol.await_all_shown());
      for (int member = 0; member < size; ++member) {
        if (member == self || (from >= 0 && from != member)) continue;
        if (from >= 0) CHECK(protocol.await_shown(member));
        notes_.access({cell(member), false, value(0, member, 0)});
      }
      if (staged) protocol.end_staged();
    };
    switch (operation.kind) {
      case Kind::kAllreduce:
        protocol.reduce_and_share(
            operation.steps, publish_parts,
            [&](uint32_t k, uint32_t step) {
              combine(k, step);
              note(true, step, result_of(self, size), value(1, self, k));
            },
            [&](uint32_t k, uint32_t step, int member) {
              note(false, step, result_of(member, size), value(1, member, k));
            });
        return;
      case Kind::kReducescatter:
        protocol.reduce(operation.steps, publish_parts, combine);
        return;
      case Kind::kAllgather:
        protocol.move(operation.steps, -1, publish_whole, take_whole);
        return;
      case Kind::kAlltoall:  // begins with a one-shot exchange, as every alltoall does
        once(true, true, -1);
        protocol.move(operation.steps, -1, publish_parts, [&](uint32_t k, uint32_t step, int member) {
          if (member != self) note(false, step, input_for(member, self), value(0, member, k));
        });
        return;
      case Kind::kBroadcast:
        protocol.move(operation.steps, root, publish_whole, take_whole);
        return;
      case Kind::kOnce:
        return once(true, true, -1);
      case Kind::kOnceInline:
        return once(false, true, -1);
      case Kind::kOnceBroadcast:
        return once(true, self == root, root);
    }
  }

  const Program& program() const { return notes_.program; }

 private:
  static int member_of(const NotingGroup& group, int world_rank) {
    for (int member = 0; member < group.size(); ++member)
      if (group.world_rank(member) == world_rank) return member;
    return 0;
  }

  Notes notes_;
  StagingUse<NotingGroup> staging_;
  std::array<std::shared_ptr<NotingGroup>, kGroups> groups_;
  std::vector<std::unique_ptr<ShmProtocol<NotingGroup>>> protocols_;
};

// ---- exploring

struct State {
  std::array<uint16_t, kRanks> at{};  // the next move of each rank
  std::array<uint32_t, kCells> memory{};
};

// A rank's counters before each of its moves.
using Counters = std::array<std::array<uint32_t, kCounters>, kGroups>;
std::vector<Counters> counters_of(const Program& program) {
  std::vector<Counters> all(1);
  for (const Move& move : program) {
    all.push_back(all.back());
    for (const Post& post : move.posts)
      all.back()[static_cast<size_t>(post.group)][post.counter] = post.value;
  }
  return all;
}

uint64_t key_of(const State& state) {
  uint64_t key = 0;
  for (uint16_t at : state.at) key = key << 16 | at;
  return key;
}

bool enabled(const Move& move, const State& state, const std::vector<std::vector<Counters>>& counters) {
  for (const Await& what : move.awaits) {
    const auto rank = static_cast<size_t>(what.rank);
    const Counters& theirs = counters[rank][state.at[rank]];
    if (!reached(theirs[static_cast<size_t>(what.group)][what.counter], what.value)) return false;
  }
  return true;
}

bool collide(const Move& a, const Move& b) {
  for (const Access& left : a.accesses)
    for (const Access& right : b.accesses)
      if (left.cell == right.cell && (left.write || right.write)) return true;
  return false;
}

struct Exploration {
  uint64_t states = 0;
  std::string wrong;  // what was found, if anything
};

void explore(const std::vector<Operation>& operations, Rules rules, Exploration* result) {
  std::vector<Program> programs;
  std::vector<std::vector<Counters>> counters;
  for (int rank = 0; rank < kRanks; ++rank) {
    NotingRank noting(rank, rules);
    for (size_t i = 0; i < operations.size(); ++i) noting.run(operations[i], static_cast<uint32_t>(i));
    programs.push_back(noting.program());
    counters.push_back(counters_of(programs.back()));
  }
  auto fail = [&](const std::string& what) {
    result->wrong = what + " in";
    for (const Operation& operation : operations) result->wrong += " [" + show(operation) + "]";
  };
  // States with equally many moves behind them, from few to many: only two generations are kept.
  std::unordered_map<uint64_t, State> present, next;
  State start;
  present.emplace(key_of(start), start);
  while (!present.empty()) {
    next.clear();
    for (const auto& [key, state] : present) {
      result->states++;
      const Move* can[kRanks] = {};
      bool ended = true;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        if (state.at[rank] == programs[rank].size()) continue;
        ended = false;
        const Move& move = programs[rank][state.at[rank]];
        if (enabled(move, state, counters)) can[rank] = &move;
      }
      if (!ended && !can[0] && !can[1] && !can[2]) return fail("nobody can go on");
      for (size_t rank = 0; rank < kRanks; ++rank) {
        if (!can[rank]) continue;
        for (size_t other = rank + 1; other < kRanks; ++other)
          if (can[other] && collide(*can[rank], *can[other]))
            return fail("ranks " + std::to_string(rank) + " and " + std::to_string(other) + " collide");
        auto [place, fresh] = next.try_emplace(key + (uint64_t{1} << 16 * (kRanks - 1 - rank)), state);
        if (!fresh) continue;
        State& then = place->second;
        for (const Access& access : can[rank]->accesses) {
          uint32_t& cell = then.memory[static_cast<size_t>(access.cell)];
          if (access.write) {
            cell = access.value;
          } else if (cell != access.value) {
            return fail("rank " + std::to_string(rank) + " reads something else than was meant");
          }
        }
        then.at[rank]++;
      }
    }
    std::swap(present, next);
  }
}

// Every sequence of `length` of the operations.
void for_all_sequences(const std::vector<Operation>& operations, size_t length,
                       const std::function<bool(const std::vector<Operation>&)>& body) {
  std::vector<size_t> digits(length, 0);
  for (;;) {
    std::vector<Operation> sequence;
    for (size_t digit : digits) sequence.push_back(operations[digit]);
    if (!body(sequence)) return;
    size_t place = 0;
    while (place < length && ++digits[place] == operations.size()) digits[place++] = 0;
    if (place == length) return;
  }
}

std::vector<Operation> pipelines(uint32_t most_steps) {
  std::vector<Operation> operations;
  for (uint32_t steps = 1; steps <= most_steps; ++steps) {
    for (Kind kind : {Kind::kAllreduce, Kind::kReducescatter, Kind::kAllgather, Kind::kAlltoall})
      operations.push_back({kind, steps});
    for (int root = 0; root < kRanks; ++root) operations.push_back({Kind::kBroadcast, steps, root});
  }
  return operations;
}

// The first broadcast of a sequence may as well come from rank 0: turning the ranks round changes nothing.
bool turned(const std::vector<Operation>& sequence) {
  for (const Operation& operation : sequence)
    if (operation.kind == Kind::kBroadcast || operation.kind == Kind::kOnceBroadcast)
      return operation.root != 0;
  return false;
}

void explore_all(const std::vector<Operation>& operations, size_t length, bool symmetric) {
  Exploration result;
  uint64_t sequences = 0;
  for_all_sequences(operations, length, [&](const std::vector<Operation>& sequence) {
    if (symmetric && turned(sequence)) return true;
    ++sequences;
    explore(sequence, Rules::kNow, &result);
    return result.wrong.empty();
  });
  std::printf("  %llu sequences, %llu states\n", static_cast<unsigned long long>(sequences),
              static_cast<unsigned long long>(result.states));
  if (!result.wrong.empty()) std::printf("  %s\n", result.wrong.c_str());
  std::fflush(stdout);
  CHECK(result.wrong.empty());
}

}  // namespace

TEST(three_pipelines_of_up_to_six_steps_in_every_order) { explore_all(pipelines(6), 3, true); }

TEST(one_shot_exchanges_between_pipelines) {
  std::vector<Operation> operations = pipelines(2);
  operations.push_back({Kind::kAllreduce, 5});
  for (Kind kind : {Kind::kOnce, Kind::kOnceInline}) operations.push_back({kind, 0});
  for (int root = 0; root < kRanks; ++root) operations.push_back({Kind::kOnceBroadcast, 0, root});
  explore_all(operations, 4, true);
}

TEST(groups_share_staging_memory) {
  std::vector<Operation> operations;
  for (int group = 0; group < kGroups; ++group) {
    operations.push_back({Kind::kAllreduce, 2, 0, group});
    operations.push_back({Kind::kAlltoall, 1, 0, group});
    operations.push_back({Kind::kOnce, 0, 0, group});
    for (int root : kMembers[group]) {
      operations.push_back({Kind::kBroadcast, 2, root, group});
      operations.push_back({Kind::kOnceBroadcast, 0, root, group});
    }
  }
  explore_all(operations, 3, false);
}

// What this is for: with the rules of before, a pipeline that moves data overwrites results of an allreduce
// that other ranks have not fetched yet.
TEST(the_protocol_as_it_was_fails) {
  Exploration result;
  uint64_t sequences = 0;
  for_all_sequences(pipelines(6), 2, [&](const std::vector<Operation>& sequence) {
    ++sequences;
    explore(sequence, Rules::kOverwritesResults, &result);
    return result.wrong.empty();
  });
  std::printf("  after %llu sequences: %s\n", static_cast<unsigned long long>(sequences),
              result.wrong.c_str());
  CHECK(result.wrong.find("allreduce") != std::string::npos);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
