// simulate NAME=VALUE... < parents: figures of a world, as JSON. `parents` are the numbers of the ranks above
// each one; docs/scaling.md tells what the figures mean, scripts/scaling.py asks for them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "simulator/control.h"
#include "simulator/large.h"

namespace {

using namespace hvd;
using namespace hvd::simulator;

using Settings = std::map<std::string, double>;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "simulate: %s\n", why.c_str());
  std::exit(2);
}

// All that may be set, with what it is if it is not.
Settings settings_from(int count, char** words) {
  const Costs costs;
  Settings all{{"hosts", 2},
               {"local", 8},
               {"tensors", 200},
               {"alltoall", 0},
               {"bytes", 0},
               {"wake", costs.wake},
               {"local_message", costs.local},
               {"remote_message", costs.remote},
               {"latency", costs.latency},
               {"port_byte", costs.port_byte},
               {"copy_byte", costs.copy_byte},
               {"memory_byte", costs.memory_byte},
               {"submit", costs.submit},
               {"vote", costs.vote},
               {"votes", costs.votes},
               {"votes_rank", costs.votes_rank},
               {"processors", costs.processors},
               {"one_machine", 0}};
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const size_t equals = word.find('=');
    auto found = all.find(word.substr(0, equals));
    char* end = nullptr;
    if (equals == std::string::npos || found == all.end()) give_up("there is no setting '" + word + "'");
    found->second = std::strtod(word.c_str() + equals + 1, &end);
    if (*end != '\0' || end == word.c_str() + equals + 1) give_up("'" + word + "' is not a number");
  }
  return all;
}

Costs costs_from(const Settings& settings) {
  Costs costs;
  costs.wake = settings.at("wake");
  costs.local = settings.at("local_message");
  costs.remote = settings.at("remote_message");
  costs.latency = settings.at("latency");
  costs.port_byte = settings.at("port_byte");
  costs.copy_byte = settings.at("copy_byte");
  costs.memory_byte = settings.at("memory_byte");
  costs.submit = settings.at("submit");
  costs.vote = settings.at("vote");
  costs.votes = settings.at("votes");
  costs.votes_rank = settings.at("votes_rank");
  costs.processors = static_cast<int>(settings.at("processors"));
  costs.one_machine = settings.at("one_machine") != 0;
  return costs;
}

wire::Request request_of(int kind, const std::string& name, int64_t elements) {
  wire::Request request;
  request.kind = kind;
  request.name = name;
  request.tensors = {{DataType::kFloat32, {elements}}};
  return request;
}

const char* separator = "{";
void figure(const std::string& name, double value) {
  std::printf("%s\"%s\": %.9g", separator, name.c_str(), value);
  separator = ", ";
}

// The most that a rank sent and received since the last call, and what rank 0 did, for each of `count`.
void traffic(const std::string& name, Machine* machine, int count) {
  Traffic most, first = machine->traffic(0);
  for (int rank = 0; rank < machine->size(); ++rank) {
    const Traffic& own = machine->traffic(rank);
    if (own.sent + own.received > most.sent + most.received) most = own;
  }
  auto total = [&](const std::string& whose, const Traffic& own) {
    figure(name + "_messages" + whose, static_cast<double>(own.sent + own.received) / count);
    figure(name + "_bytes" + whose, static_cast<double>(own.bytes_sent + own.bytes_received) / count);
  };
  total("", most);
  total("_rank_0", first);
  machine->forget_traffic();
}

}  // namespace

int main(int count, char** words) {
  const Settings settings = settings_from(count, words);
  const auto hosts = static_cast<int>(settings.at("hosts")), local = static_cast<int>(settings.at("local"));
  const auto tensors = static_cast<int>(settings.at("tensors"));
  const Costs costs = costs_from(settings);
  if (hosts < 1 || local < 1 || tensors < 0) give_up("hosts and local are at least 1");
  if (const auto bytes = static_cast<size_t>(settings.at("bytes")); bytes > 0) {
    if (hosts < 2) give_up("an allreduce with a size needs 2 hosts");
    const Large large = allreduce_of(hosts, local, bytes, costs);
    figure("seconds", large.seconds);
    figure("messages", static_cast<double>(large.messages));
    figure("bytes", static_cast<double>(large.bytes));
    std::printf("}\n");
    return 0;
  }
  const int size = hosts * local;
  std::vector<int> parents, hosts_of;
  for (int parent = 0; std::scanf("%d", &parent) == 1;) parents.push_back(parent);
  if (static_cast<int>(parents.size()) != size || !is_tree(parents))
    give_up("the input is not a tree of " + std::to_string(size) + " ranks");
  for (int rank = 0; rank < size; ++rank) hosts_of.push_back(rank / local);
  Machine machine(hosts_of, costs);
  Control control(&machine, local, parents);

  const std::vector<wire::Request> one{request_of(HVD_ALLREDUCE, "one", 1)};
  figure("first_seconds", control.run(one));
  traffic("first", &machine, 1);
  constexpr int kRepeated = 3;
  double seconds = 0;
  for (int i = 0; i < kRepeated; ++i) seconds += control.run(one);
  figure("cached_seconds", seconds / kRepeated);
  traffic("cached", &machine, kRepeated);
  if (tensors > 0) {
    std::vector<wire::Request> step;
    for (int i = 0; i < tensors; ++i)
      step.push_back(request_of(HVD_ALLREDUCE, "gradient." + std::to_string(i), 1));
    control.run(step);
    machine.forget_traffic();
    const uint64_t before = control.operations();
    figure("step_seconds", control.run(step));
    figure("step_operations", static_cast<double>(control.operations() - before));
    traffic("step", &machine, 1);
  }
  if (settings.at("alltoall") != 0) {
    // Each time another split: one more row to the next rank than to the others.
    std::vector<std::vector<int32_t>> splits(static_cast<size_t>(size));
    for (size_t rank = 0; rank < splits.size(); ++rank) {
      splits[rank].assign(splits.size(), 1);
      splits[rank][(rank + 1) % splits.size()] = 2;
    }
    figure("alltoall_seconds", control.run_alltoall(request_of(HVD_ALLTOALL, "exchange", size + 1), splits));
    traffic("alltoall", &machine, 1);
  }
  std::printf("}\n");
}
