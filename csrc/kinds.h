// What engine, wire format and adapters need to know about each kind of operation, in one table.
#pragma once

#include <cstdint>
#include <iterator>

#include "hvd.h"

namespace hvd {

enum Trait : uint32_t {
  kHasTensors = 1,        // at least one
  kReduces = 2,           // has a reduce operation and scale factors
  kHasRoot = 4,           // hvd_request::root_rank is the rank that has the data
  kHasSplits = 8,         // hvd_request::numbers says how many rows go to each rank
  kByRows = 16,           // works along the first dimension, so there must be one
  kRowsDiffer = 32,       // each rank may have another number of rows
  kKeepsShape = 64,       // an output has the shape of its input
  kIncludesJoined = 128,  // a rank that has joined takes part without having submitted it
  kOfAllRanks = 256,      // of all ranks, each in person, because what follows depends on it
  kSumsOnly = 512,        // of the reduce operations it has Sum and Average
  kMayWait = 1024,        // a rank may wait for the others for any time: that is no stall
  kHasResult = 2048,      // hvd_result() is its answer
};

struct Kind {
  int32_t number;
  const char* name;
  uint32_t traits;
};

constexpr Kind kKinds[] = {
    {HVD_ALLREDUCE, "allreduce", kHasTensors | kReduces | kKeepsShape | kIncludesJoined},
    {HVD_ALLGATHER, "allgather", kHasTensors | kByRows | kRowsDiffer},
    {HVD_BROADCAST, "broadcast", kHasTensors | kHasRoot | kKeepsShape},
    {HVD_ALLTOALL, "alltoall", kHasTensors | kHasSplits | kByRows | kRowsDiffer},
    {HVD_REDUCESCATTER, "reducescatter", kHasTensors | kReduces | kByRows | kSumsOnly},
    {HVD_BARRIER, "barrier", kIncludesJoined},
    {HVD_JOIN, "join", kOfAllRanks | kMayWait | kHasResult},
    {HVD_ADD_PROCESS_SET, "add_process_set", kOfAllRanks | kHasResult},
    {HVD_REMOVE_PROCESS_SET, "remove_process_set", kOfAllRanks | kHasResult},
};

constexpr bool is_kind(int32_t number) {
  return number >= 0 && number < static_cast<int32_t>(std::size(kKinds));
}

// `number` must be a kind: what comes from outside is checked first.
constexpr bool has(int32_t number, Trait trait) { return (kKinds[number].traits & trait) != 0; }

constexpr const char* kind_name(int32_t number) { return kKinds[number].name; }

constexpr bool numbered_in_order() {
  for (int32_t i = 0; is_kind(i); ++i)
    if (kKinds[i].number != i) return false;
  return true;
}
static_assert(numbered_in_order(), "a kind's number is its place in the table");

}  // namespace hvd
