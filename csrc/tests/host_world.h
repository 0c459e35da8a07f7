// A world of ranks that are threads on pretended hosts, over the hierarchical transport.
#pragma once

#include <linux/tcp.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/not_copied.h"
#include "comm/hierarchical/layout.h"
#include "comm/transport.h"
#include "tests/check.h"
#include "tests/comm_operations.h"
#include "tests/comm_suite.h"

namespace suite {

using HostList = std::vector<int>;  // by rank

// Equal and unequal hosts, ranks in a row and dealt out, hosts numbered against the order of the ranks.
const HostList kLayouts[] = {
    {0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 0, 1}, {2, 0, 1, 0, 2},
};

class HostWorld : hvd::NotCopied {
 public:
  // At first only ranks that share a lane of all are connected.
  explicit HostWorld(HostList hosts, Kind kind = Kind::kUnix)
      : hosts_(std::move(hosts)),
        kind_(kind),
        mesh_(hosts_.size(), std::vector<int>(hosts_.size() * static_cast<size_t>(streams_of(kind)), -1)) {
    connect(everyone());
    for (int i = 0; i < size(); ++i) {
      aborts_.push_back(std::make_unique<hvd::AbortSignal>());
      const auto here = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), hosts_[i]));
      if (here == 1 || memory_.count(hosts_[i]) > 0) continue;
      void* memory = mmap(nullptr, hvd::shm_bytes(here), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(memory != MAP_FAILED);
      memory_[hosts_[i]] = {memory, hvd::shm_bytes(here)};
    }
    for (int i = 0; i < size(); ++i) {
      auto memory = memory_.find(hosts_[i]);
      transports_.push_back(
          hvd::make_hierarchical_transport(memory == memory_.end() ? nullptr : memory->second.data, hosts_,
                                           mesh_[i], i, *aborts_[i], {}, nullptr, streams_of(kind_)));
    }
  }
  ~HostWorld() {
    transports_.clear();
    for (auto& [host, memory] : memory_) munmap(memory.data, memory.bytes);
  }

  // Those of `members` that share a lane of theirs.
  void connect(const std::vector<int>& members) {
    const hvd::HierarchicalLayout layout(hosts_of(members), 0);
    for (int lane = 0; lane < layout.lanes(); ++lane) {
      for (int i : layout.lane_members(lane))
        for (int j : layout.lane_members(lane)) connect(members[i], members[j]);
    }
  }

  int size() const { return static_cast<int>(hosts_.size()); }
  int connections(int rank) const {
    return static_cast<int>(mesh_[rank].size()) -
           static_cast<int>(std::count(mesh_[rank].begin(), mesh_[rank].end(), -1));
  }
  Transport& transport(int rank) { return *transports_[rank]; }
  hvd::AbortSignal& abort(int rank) { return *aborts_[rank]; }
  std::vector<int> everyone() const {
    std::vector<int> ranks(hosts_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  HostList hosts_of(const std::vector<int>& members) const {
    HostList hosts;
    for (int member : members) hosts.push_back(hosts_[member]);
    return hosts;
  }
  // What has arrived from the ranks of a host at those of others, for Kind::kTcp.
  uint64_t bytes_sent(int host) const {
    uint64_t sum = 0;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        if (hosts_[from] != host || hosts_[to] == host || mesh_[to][from] < 0) continue;
        tcp_info info = {};
        socklen_t length = sizeof info;
        CHECK(getsockopt(mesh_[to][from], IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
        sum += info.tcpi_bytes_received;
      }
    }
    return sum;
  }

 private:
  void connect(int i, int j) {
    if (i >= j || mesh_[i][j] >= 0) return;
    for (int stream = 0; stream < streams_of(kind_); ++stream) {
      int pair[2];
      connect_pair(kind_, pair);
      mesh_[i][stream * size() + j] = pair[0];
      mesh_[j][stream * size() + i] = pair[1];
      if (transports_.empty()) continue;
      CHECK(transports_[i]->connect(j, pair[0], nullptr).ok() &&
            transports_[j]->connect(i, pair[1], nullptr).ok());
    }
  }

  HostList hosts_;
  Kind kind_;
  std::vector<std::vector<int>> mesh_;
  std::map<int, Piece> memory_;
  std::vector<std::unique_ptr<hvd::AbortSignal>> aborts_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// `body` on every rank with the world's communicator.
inline void run_hosts(const HostList& hosts, const std::function<void(Communicator&, const HostList&)>& body,
                      Kind kind = Kind::kUnix) {
  HostWorld world(hosts, kind);
  on_threads(world.size(), [&](int rank) {
    auto communicator = world.transport(rank).open(0, world.everyone());
    CHECK(communicator->rank() == rank && communicator->size() == world.size());
    body(*communicator, hosts);
  });
}

inline void run_layouts(const std::function<void(Communicator&, const HostList&)>& body) {
  for (const HostList& hosts : kLayouts) run_hosts(hosts, body);
  run_hosts({2, 0, 1, 0, 2}, body, Kind::kStreams);
}

// Each host's values in rank order, then the hosts' results.
inline Bytes reduced_by_host(const Reduction& reduction, const HostList& hosts,
                             const std::vector<Bytes>& inputs) {
  std::map<int, std::vector<Bytes>> by_host;
  size_t most = 0;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    std::vector<Bytes>& here = by_host[hosts[rank]];
    here.push_back(inputs[rank]);
    most = std::max(most, here.size());
  }
  if (by_host.size() == 1 || most == 1) return reduced(reduction, inputs);
  const Reduction partial = {reduction.type, reduction.op, 1.0};
  std::vector<Bytes> results;
  for (auto& entry : by_host) results.push_back(reduced(partial, entry.second));
  return reduced(reduction, results);
}

inline Combine by_host(const HostList& hosts) {
  return [hosts](const Reduction& reduction, const std::vector<Bytes>& inputs) {
    return reduced_by_host(reduction, hosts, inputs);
  };
}

}  // namespace suite
