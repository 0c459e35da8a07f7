// A virtual clock, and hosts on it: processors that ranks take turns on, and a port to the network each.
//
// A rank that gets messages waits for a processor, then takes all that have arrived, one after the other, and
// sends what follows from them, as a hub does. So what a rank does in a moment follows from what else its
// processor has to do. Nothing here depends on chance: the same world gives the same figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace hvd::simulator {

// Seconds, and seconds for each byte.
struct Costs {
  double wake = 5e-6;              // a processor turns to a rank
  double local = 0.3e-6;           // a message within a host, at either end
  double remote = 4e-6;            // a message between hosts, at either end
  double latency = 10e-6;          // of the network
  double port_byte = 1 / 12.5e9;   // a host's port, in each direction
  double copy_byte = 1 / 5e9;      // a rank's processor, for what it sends or receives
  double memory_byte = 1 / 200e9;  // a host's memory
  double submit = 2e-6;            // a call of the program
  double vote = 200e-9;            // a rank's vote, where it is counted by itself
  double votes = 70e-9;            // those of several ranks that are counted together, and
  double votes_rank = 0.042e-9;    // for each rank of the world
  int processors = 8;              // of a host, or
  bool one_machine = false;        // of all hosts together
};

struct Traffic {
  uint64_t sent = 0, received = 0, bytes_sent = 0, bytes_received = 0;
};

class Machine {
 public:
  using Action = std::function<void()>;

  Machine(std::vector<int> hosts, const Costs& costs);

  int size() const { return static_cast<int>(hosts_.size()); }
  int host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  const Costs& costs() const { return costs_; }

  // Within an action of rank `from`: a message of so many bytes; `action` is what it does there. What is
  // `control` counts as traffic.
  void send(int from, int to, size_t bytes, bool control, Action action);
  // Within an action: its rank computes for so long.
  void spend(double seconds) { now_ += seconds; }
  // A rank has something to do from then on.
  void at(double time, int rank, Action action) { push(time, rank, 0, std::move(action)); }
  // To be called each time that a rank has taken all that had arrived.
  std::function<void(int rank)> after;

  // Until nothing is left to do; then at the time at which the last rank became idle.
  void run();
  double now() const { return now_; }
  const Traffic& traffic(int rank) const { return traffic_[static_cast<size_t>(rank)]; }
  void forget_traffic() { traffic_.assign(traffic_.size(), {}); }

 private:
  struct Message {
    double cost;
    Action action;
  };
  struct Event {
    double time;
    uint64_t number;
    int rank;
    double cost;  // less than 0: a processor is free
    Action action;
    double wire = 0;  // the first byte is at the port, which it takes for so long
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  enum class State : uint8_t { kIdle, kQueued, kRunning };

  void push(double time, int rank, double cost, Action action, double wire = 0);
  void queue(int rank);
  void take_turn(int rank, double time);
  size_t pool(int rank) const { return costs_.one_machine ? 0 : static_cast<size_t>(host(rank)); }

  const std::vector<int> hosts_;
  const Costs costs_;
  double now_ = 0;  // of the action that runs
  uint64_t events_ = 0;
  std::priority_queue<Event> queue_;
  std::vector<State> state_;                // [rank]
  std::vector<std::deque<Message>> inbox_;  // [rank]
  std::vector<int> free_;                   // [pool]: processors
  std::vector<std::deque<int>> waiting_;    // [pool]: ranks that want one
  std::vector<double> out_, in_;            // [host]: until when its port is taken
  std::vector<Traffic> traffic_;            // [rank]
};

}  // namespace hvd::simulator
