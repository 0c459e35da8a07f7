// The control plane of a world on a Machine: real Negotiation and Combining, real frames; and small
// operations, whose data follows the real communicators.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/branches.h"
#include "engine/combining.h"
#include "engine/negotiation.h"
#include "simulator/machine.h"
#include "simulator/script.h"

namespace hvd::simulator {

class Control {
 public:
  // `parents`: see horovod/_bootstrap/world/tree.py. Hosts have `local` ranks each.
  Control(Machine* machine, int local, const std::vector<int>& parents);

  // All ranks submit these at once, and wait for all. The seconds that took.
  double run(const std::vector<wire::Request>& requests);
  // The same, but request.numbers are splits[rank].
  double run_alltoall(wire::Request request, const std::vector<std::vector<int32_t>>& splits);
  uint64_t operations() const { return operations_; }  // released, each perhaps of several tensors

 private:
  using Frame = std::vector<uint8_t>;
  // How far a rank has come with the data of what was released to it.
  struct Runner {
    std::deque<bool> todo;  // operations; whether each moves data
    bool running = false;
    size_t round = 0;
    int missing = 0;                       // messages of the round
    std::unordered_map<int, int> balance;  // by peer: messages that came less those that were waited for
  };

  double finish();
  void announce(int rank, Frame frame);
  void arrive(int at, size_t branch, const Frame& frame);
  void spend_on_votes(int at, const RankSet& ranks, const wire::Message& message);
  void count(const RankSet& ranks, const wire::Message& message);
  void act(int rank);
  void release();
  void send_down(int from, size_t branch, const Frame& frame);
  void from_above(int rank, const Frame& frame);
  void learn(int rank, const Frame& frame);

  void run_next(int rank);
  void host_is_ready(int rank);
  void begin_round(int rank);
  void rounds_over(int rank);
  void ended(int rank);

  Negotiation::Time time() const;
  bool is_hub(int rank) const { return !branches_[static_cast<size_t>(rank)].empty(); }
  Runner& runner(int rank) { return runners_[static_cast<size_t>(rank)]; }

  Machine& machine_;
  const int size_, local_;
  const std::vector<int> parents_;
  std::vector<std::vector<Branch>> branches_;          // [rank], of hubs
  std::vector<size_t> branch_;                         // [rank]: its place among those of its parent
  std::vector<std::unique_ptr<Combining>> combining_;  // [rank], of hubs but rank 0
  Negotiation negotiation_;
  std::unordered_map<std::string, uint32_t> known_;  // names by the ids that all ranks remember
  uint64_t operations_ = 0;
  int64_t sent_to_rank_0_ = 0, executed_ = 0;
  std::vector<Runner> runners_;               // [rank]
  std::vector<int> ready_;                    // [host]: ranks that wait for the others there
  std::vector<std::vector<Round>> exchange_;  // [rank]: of a small operation
};

}  // namespace hvd::simulator
