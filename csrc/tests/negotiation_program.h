// What simulated ranks submit in random sequences, and such a rank with the rules of Engine.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kinds.h"
#include "negotiation_reference.h"
#include "test_knobs.h"

#define REQUIRE(condition)                                                                          \
  do {                                                                                              \
    if (!(condition)) throw std::logic_error("line " + std::to_string(__LINE__) + ": " #condition); \
  } while (0)

namespace sequences {

using hvd::wire::Agreement;
using hvd::wire::MessageType;
using hvd::wire::Request;
using reference::DataType;
using reference::ReduceOp;
using reference::Submission;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  bool one_in(int n) { return below(n) == 0; }
  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int>(choices.size()))];
  }

 private:
  uint64_t state_;
};

// One line of the program that all ranks follow more or less.
struct Line {
  int kind = 0;
  int set = 0;  // or the set to remove
  std::string name;
  int variant = 0;  // what exactly; mostly the same for a name
  std::vector<int32_t> ranks;
};

inline std::vector<int32_t> some_ranks(Random& random, int size) {
  std::vector<int32_t> ranks;
  while (ranks.empty())
    for (int rank = 0; rank < size; ++rank)
      if (random.one_in(2)) ranks.push_back(rank);
  return ranks;
}

inline std::vector<Line> some_program(Random& random, int size, bool stray_joins) {
  constexpr int kKinds[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE,     HVD_ALLGATHER,
                            HVD_BROADCAST, HVD_ALLTOALL,  HVD_REDUCESCATTER, HVD_BARRIER};
  const int names = 2 + random.below(7), sets = random.below(4), rare = random.pick({10, 24, 60});
  std::vector<Line> program(static_cast<size_t>(3 + random.below(50)));
  for (size_t i = 0; i < program.size(); ++i) {
    Line& line = program[i];
    const int what = random.below(rare);
    line.set = random.below(sets + 1);
    if (static_cast<int>(i) < sets || what < 2) {
      line.kind = HVD_ADD_PROCESS_SET;
      line.set = 0;
      line.name = "add";
      line.ranks = some_ranks(random, size);
    } else if (what == 2) {
      line.kind = HVD_REMOVE_PROCESS_SET;
      line.set = 1 + random.below(std::max(sets, 1));
      line.name = random.one_in(4) ? "remove too" : "remove";
    } else if (what == 3 && !stray_joins) {
      line.kind = HVD_JOIN;
      line.set = 0;
      line.name = "join";
    } else {
      const int name = random.below(names);
      line.kind = kKinds[name];
      line.name = std::string(1, static_cast<char>('a' + name));
      if (random.one_in(10)) line.name = "x.noname." + std::to_string(i);
      line.variant = random.one_in(8) ? random.below(40) : line.kind;
    }
  }
  return program;
}

// A rank's own part of an operation. Depends on nothing but the line and the rank, so that it is remembered.
inline Request describe(const Line& line, int rank, const std::vector<int>& members) {
  Request request;
  request.kind = line.kind;
  request.process_set = line.set;
  request.name = line.name;
  if (line.kind == HVD_REMOVE_PROCESS_SET) {
    request.root_rank = line.set;
    request.process_set = 0;
  }
  if (line.kind == HVD_ADD_PROCESS_SET) request.numbers = line.ranks;
  if (!hvd::has(line.kind, hvd::kHasTensors)) return request;
  Random random(static_cast<uint64_t>(line.variant));
  const int tensors = line.kind == HVD_ALLTOALL || !random.one_in(6) ? 1 : 2;
  const int64_t rows = reference::by_rows(line.kind) ? 8 + rank % 2 * random.below(3) : 8;
  for (int i = 0; i < tensors; ++i) {
    const auto type = random.pick(
        {DataType::kFloat32, DataType::kFloat32, DataType::kInt64, DataType::kFloat16, DataType::kComplex64});
    std::vector<int64_t> shape = {rows, 1 + random.below(3)};
    if (random.one_in(15)) shape.clear();
    request.tensors.push_back({type, shape});
  }
  if (line.kind == HVD_ALLREDUCE || line.kind == HVD_REDUCESCATTER)
    request.op = random.pick({ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kSum,
                              ReduceOp::kMax, ReduceOp::kAdasum});
  if (random.one_in(10)) request.prescale = 2.0;
  if (random.one_in(10)) request.postscale = 0.5;
  if (line.kind == HVD_BROADCAST)
    request.root_rank = members[static_cast<size_t>(random.below(static_cast<int>(members.size())))];
  if (line.kind == HVD_ALLTOALL)
    for (int to : members) request.numbers.push_back(1 + (rank + 2 * to + line.variant) % 5);
  return request;
}

// What the ranks should have agreed on.
inline void spoil(Request* request, Random& random, int size, bool stray_joins) {
  switch (random.below(8)) {
    case 0:
      if (stray_joins && request->process_set == 0 && request->name == "a") {
        request->kind = HVD_JOIN;
        request->tensors.clear();
        request->numbers.clear();
      }
      return;
    case 1:
      if (request->kind == HVD_BROADCAST || request->kind == HVD_REMOVE_PROCESS_SET)
        request->root_rank = random.below(size);
      return;
    case 2:
      if (request->kind == HVD_ADD_PROCESS_SET) request->numbers = some_ranks(random, size);
      return;
    case 3:
      request->prescale = 3.0;
      return;
    case 4:
      if (request->kind == HVD_ALLREDUCE) request->op = ReduceOp::kMin;
      return;
    default:
      if (request->tensors.empty() || request->tensors[0].shape.empty()) return;
      if (random.one_in(3)) {
        request->tensors[0].type = DataType::kUint8;
      } else if (random.one_in(3) && request->kind == HVD_ALLREDUCE) {
        request->kind = HVD_BROADCAST;
      } else {
        request->tensors[0].shape[random.one_in(2) ? 0 : 1] += 1;
      }
  }
}

inline bool same(const Request& a, const Request& b) {
  return a.kind == b.kind && a.process_set == b.process_set && a.root_rank == b.root_rank && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.name == b.name &&
         a.tensors == b.tensors && a.numbers == b.numbers;
}

inline int64_t bytes_of(const Agreement& agreement) {
  int64_t bytes = 0;
  for (size_t i = 0; i < agreement.common.tensors.size(); ++i) {
    const auto& tensor = agreement.common.tensors[i];
    std::vector<int64_t> rows = tensor.shape.empty() ? std::vector<int64_t>{1} : std::vector{tensor.shape[0]};
    if (!agreement.first_dims.empty()) rows = agreement.first_dims[i];
    for (int64_t count : rows) {
      for (size_t d = 1; d < tensor.shape.size(); ++d) count *= tensor.shape[d];
      bytes += count * static_cast<int64_t>(hvd::size_of(tensor.type));
    }
  }
  return bytes;
}

using Key = std::pair<int, std::string>;

using Frame = std::vector<uint8_t>;  // without its length
inline Frame without_length(const Frame& frame) { return {frame.begin() + sizeof(uint32_t), frame.end()}; }

struct Remembered {
  Agreement agreement;
  Key key;
  bool mine = false;
  Request request;
};

struct Rank {
  int number = 0;
  std::vector<Line> program;
  size_t next = 0;
  std::map<int, reference::Set> sets;
  std::map<Key, Submission*> pending;
  std::map<uint32_t, Remembered> cache;
  std::map<Key, uint32_t> ids;
  std::deque<Frame> outbox, inbox;
  std::deque<std::vector<reference::Operation*>> expected;  // of each release for it that it has not run

  bool has_pending(int kind, int set = 0) const {
    for (const auto& entry : pending)
      if (entry.second->request.kind == kind && (kind == HVD_JOIN || entry.second->request.root_rank == set))
        return true;
    return false;
  }

  // Engine refuses the rest.
  bool may_submit(const Request& request) const {
    auto set = sets.find(request.process_set);
    if (set == sets.end()) return false;
    const auto& members = set->second.members;
    if (!std::binary_search(members.begin(), members.end(), number)) return false;
    if (pending.count({request.process_set, request.name}) || has_pending(HVD_JOIN)) return false;
    return request.process_set == 0 || !has_pending(HVD_REMOVE_PROCESS_SET, request.process_set);
  }
};

inline void check_agreement(const Agreement& actual, const Agreement& expected) {
  REQUIRE(same(actual.common, expected.common));
  REQUIRE(actual.first_dims == expected.first_dims);
  REQUIRE(actual.result == expected.result);
}

// Whether it is more than one.
inline bool check_fusion(const std::vector<reference::Operation*>& operations, const hvd_knobs& knobs) {
  REQUIRE(!operations.empty());
  if (operations.size() == 1) return false;
  const Request& first = operations[0]->agreement.common;
  int64_t bytes = 0;
  for (const reference::Operation* operation : operations) {
    const Request& common = operation->agreement.common;
    REQUIRE(common.kind == first.kind && hvd::has(common.kind, hvd::kHasTensors) &&
            operation->id == operations[0]->id && common.op == first.op &&
            common.root_rank == first.root_rank && common.prescale == first.prescale &&
            common.postscale == first.postscale && common.tensors[0].type == first.tensors[0].type);
    REQUIRE(!knobs.disable_group_fusion || common.tensors.size() == 1);
    bytes += bytes_of(operation->agreement);
  }
  REQUIRE(bytes <= knobs.fusion_threshold);
  return true;
}

inline hvd_knobs some_knobs(Random& random) {
  hvd_knobs knobs = test_knobs();
  knobs.fusion_threshold = random.pick<int64_t>({0, 100, 300, 1 << 20});
  knobs.cache_capacity = random.pick({0, 1, 2, 3, 8});
  knobs.disable_group_fusion = random.one_in(4);
  return knobs;
}

}  // namespace sequences
