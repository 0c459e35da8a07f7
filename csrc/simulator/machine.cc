#include "simulator/machine.h"

#include <algorithm>

namespace hvd::simulator {

Machine::Machine(std::vector<int> hosts, const Costs& costs)
    : hosts_(std::move(hosts)),
      costs_(costs),
      state_(hosts_.size(), State::kIdle),
      inbox_(hosts_.size()),
      traffic_(hosts_.size()) {
  const auto count = static_cast<size_t>(*std::max_element(hosts_.begin(), hosts_.end())) + 1;
  free_.assign(count, costs.processors);
  waiting_.resize(count);
  out_.assign(count, 0);
  in_.assign(count, 0);
}

void Machine::send(int from, int to, size_t bytes, bool control, Action action) {
  const auto length = static_cast<double>(bytes);
  if (control) {
    Traffic &sender = traffic_[static_cast<size_t>(from)], &receiver = traffic_[static_cast<size_t>(to)];
    sender.sent++;
    sender.bytes_sent += bytes;
    receiver.received++;
    receiver.bytes_received += bytes;
  }
  if (host(from) == host(to)) {
    now_ += costs_.local;
    return push(now_, to, costs_.local, std::move(action));
  }
  now_ += costs_.remote + length * costs_.copy_byte;
  // The first byte leaves when the port is free, and comes in when that of the receiver is.
  double& out = out_[static_cast<size_t>(host(from))];
  const double wire = length * costs_.port_byte, leaves = std::max(now_, out);
  out = leaves + wire;
  push(leaves + costs_.latency, to, costs_.remote + length * costs_.copy_byte, std::move(action), wire);
}

void Machine::push(double time, int rank, double cost, Action action, double wire) {
  queue_.push({time, events_++, rank, cost, std::move(action), wire});
}

void Machine::run() {
  double last = now_;
  while (!queue_.empty()) {
    Event event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    if (event.wire > 0) {
      double& in = in_[static_cast<size_t>(host(event.rank))];
      in = std::max(event.time, in) + event.wire;
      push(in, event.rank, event.cost, std::move(event.action));
      continue;
    }
    const size_t place = pool(event.rank);
    if (event.cost < 0) {  // the rank's turn is over
      last = event.time;
      free_[place]++;
      state_[static_cast<size_t>(event.rank)] = State::kIdle;
    } else {
      inbox_[static_cast<size_t>(event.rank)].push_back({event.cost, std::move(event.action)});
    }
    queue(event.rank);
    while (free_[place] > 0 && !waiting_[place].empty()) {
      const int rank = waiting_[place].front();
      waiting_[place].pop_front();
      free_[place]--;
      take_turn(rank, event.time);
    }
  }
  now_ = last;
}

void Machine::queue(int rank) {
  const auto index = static_cast<size_t>(rank);
  if (state_[index] != State::kIdle || inbox_[index].empty()) return;
  state_[index] = State::kQueued;
  waiting_[pool(rank)].push_back(rank);
}

void Machine::take_turn(int rank, double time) {
  const auto index = static_cast<size_t>(rank);
  state_[index] = State::kRunning;
  now_ = time + costs_.wake;
  std::deque<Message> messages = std::exchange(inbox_[index], {});
  for (Message& message : messages) {
    now_ += message.cost;
    message.action();
  }
  if (after) after(rank);
  push(now_, rank, -1, nullptr);
}

}  // namespace hvd::simulator
