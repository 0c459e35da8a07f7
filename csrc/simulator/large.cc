#include "simulator/large.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulator/script.h"

namespace hvd::simulator {
namespace {

// Times that memory is passed over by each byte of each rank: what has to be staged is written, read and
// written again; what is shared out is read and written.
constexpr double kCombining = 3, kSharing = 2;

class Lane {
 public:
  Lane(int hosts, int local, size_t bytes, const Costs& costs)
      : local_(local),
        machine_(numbered(hosts), costs),
        blocks_(blocks_of(hosts, local, bytes)),
        members_(static_cast<size_t>(hosts)) {
    for (const Block& block : blocks_) {
      // Most blocks are of the same length.
      auto [found, fresh] = rounds_.try_emplace(block.exchanged);
      if (!fresh) continue;
      for (int host = 0; host < hosts; ++host)
        found->second.push_back(rounds_of(host, hosts, local, block.exchanged));
    }
  }

  double run() {
    for (int host = 0; host < machine_.size(); ++host)
      machine_.at(within(blocks_[0].combined, kCombining), host, [this, host] { begin(host); });
    machine_.run();
    double end = 0;
    for (const Member& each : members_) end = std::max(end, each.end);
    return end;
  }

  // Calls visit(sent) for what the first member sends.
  template <typename Visit>
  void each_sent(Visit visit) const {
    for (const Block& block : blocks_)
      for (const Round& round : rounds_.at(block.exchanged)[0])
        for (const Round::Sent& sent : round.sent) visit(sent);
  }

 private:
  struct Member {
    size_t block = 0, round = 0;
    int missing = 0;
    std::unordered_map<int, int> balance;  // by peer: messages that came less those that were waited for
    double started = 0, end = 0;
  };

  static std::vector<int> numbered(int count) {
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(i);
    return numbers;
  }

  Member& member(int host) { return members_[static_cast<size_t>(host)]; }

  double within(size_t bytes, double times) const {
    const Costs& costs = machine_.costs();
    return costs.wake + static_cast<double>(bytes) * times * local_ * costs.memory_byte;
  }

  // As HierarchicalCommunicator::allreduce_chunks(): while a block is on the network the one before it is
  // shared out and the next one is combined.
  void begin(int host) {
    Member& own = member(host);
    own.round = 0;
    own.started = machine_.now();
    go_on(host);
  }

  void go_on(int host) {
    Member& own = member(host);
    const std::vector<Round>& rounds = rounds_.at(blocks_[own.block].exchanged)[static_cast<size_t>(host)];
    for (; own.round < rounds.size(); ++own.round) {
      for (const Round::Sent& sent : rounds[own.round].sent) {
        const int to = sent.to / local_;
        machine_.send(host, to, sent.bytes, false, [this, host, to] { came(to, host); });
      }
      for (int from : rounds[own.round].from) own.missing += own.balance[from / local_]-- <= 0;
      if (own.missing > 0) return;
    }
    const size_t done = own.block++;
    if (own.block == blocks_.size()) {
      own.end = machine_.now() + within(blocks_[done].shared, kSharing);
      return;
    }
    double ready = own.started + within(blocks_[own.block].combined, kCombining);
    if (done > 0) ready += within(blocks_[done - 1].shared, kSharing);
    machine_.at(std::max(machine_.now(), ready), host, [this, host] { begin(host); });
  }

  void came(int host, int from) {
    Member& own = member(host);
    const bool awaited = own.balance[from]++ < 0;
    if (!awaited || --own.missing > 0) return;
    ++own.round;
    go_on(host);
  }

  const int local_;
  Machine machine_;
  const std::vector<Block> blocks_;
  std::map<size_t, std::vector<std::vector<Round>>> rounds_;  // by the bytes of a share: [host]
  std::vector<Member> members_;
};

}  // namespace

Large allreduce_of(int hosts, int local, size_t bytes, Costs costs) {
  // Those that take part share the port.
  costs.port_byte *= lanes_of(hosts, local, bytes);
  Lane lane(hosts, local, bytes, costs);
  Large result;
  result.seconds = lane.run();
  lane.each_sent([&](const Round::Sent& sent) {
    ++result.messages;
    result.bytes += sent.bytes;
  });
  return result;
}

}  // namespace hvd::simulator
