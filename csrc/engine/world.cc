#include "engine/world.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/processors.h"
#include "comm/chunks.h"
#include "comm/mpi/calls.h"
#include "engine/abi_struct.h"
#include "engine/branches.h"

namespace hvd {
namespace {

// The transport's memory, the control rings, and where the ranks meet.
size_t meeting_offset(int ranks) {
  constexpr size_t kAlignment = 128;
  return (shm_bytes(ranks) + wire::ControlRings::bytes(ranks) + kAlignment - 1) / kAlignment * kAlignment;
}

// And, in a larger file, the tensors of the ranks.
size_t heap_offset(int ranks) { return round_up(host_memory_bytes(ranks), SharedHeap::kPage); }

std::shared_ptr<void> map(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [bytes](void* address) { munmap(address, bytes); }};
}

// Those that the heap takes, for nothing at first, would be missing elsewhere.
bool addresses_are_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// The memory of the ranks of this host, of which this one is number `rank`. Takes over the descriptor.
bool map_shared(int fd, int ranks, int rank, Engine::Parts* parts) {
  struct stat file{};
  const size_t start = heap_offset(ranks);
  const bool known = fstat(fd, &file) == 0;
  const size_t each = known && static_cast<size_t>(file.st_size) > start
                          ? (static_cast<size_t>(file.st_size) - start) / static_cast<size_t>(ranks) /
                                SharedHeap::kPage * SharedHeap::kPage
                          : 0;
  if (each > 0 && !addresses_are_limited())
    parts->memory = map(fd, start + each * static_cast<size_t>(ranks));
  std::byte* heap = parts->memory ? static_cast<std::byte*>(parts->memory.get()) + start : nullptr;
  if (!parts->memory) parts->memory = map(fd, host_memory_bytes(ranks));
  if (parts->memory && each > 0) {
    if (heap != nullptr) madvise(heap, each * static_cast<size_t>(ranks), MADV_DONTDUMP);
    parts->heap = std::make_shared<SharedHeap>(parts->memory, fd, heap, each, ranks, rank);
  }
  close(fd);
  return parts->memory != nullptr;
}

int streams_of(const hvd_world& world) { return std::max(world.mesh_streams, 1); }

// Takes over the mesh and the memory of this host, also when it fails.
Status take_hosts(const hvd_world& world, const std::vector<int>& mesh_fds, const std::vector<LinkKeys>& keys,
                  const AbortSignal& abort, Engine::Parts* parts) {
  auto give_up = [&](Status status) {
    for (int fd : mesh_fds)
      if (fd >= 0) close(fd);
    return status;
  };
  if (world.hosts == nullptr) {
    if (world.shm_fd >= 0) close(world.shm_fd);
    return give_up(
        Status::invalid("The hierarchical transport needs hvd_world.hosts: the host of each rank."));
  }
  std::vector<int> hosts(world.hosts, world.hosts + world.size);
  const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[world.rank]));
  if (here > 1 || world.shm_fd >= 0) {
    const auto place = static_cast<int>(
        std::count(hosts.begin(), hosts.begin() + world.rank, hosts[static_cast<size_t>(world.rank)]));
    if (!map_shared(world.shm_fd, here, place, parts))
      return give_up(Status::unknown("Can't map the memory that the ranks of this host share."));
  }
  parts->transport = make_hierarchical_transport(parts->memory.get(), std::move(hosts), mesh_fds, world.rank,
                                                 abort, keys, parts->heap, streams_of(world));
  return {};
}

void meet_ranks_of(const hvd_world& world) {
  std::vector<int> pids = {getpid()};
  for (int32_t rank = 0; rank < world.size; ++rank)
    if (rank != world.rank && world.peers[rank].same_host) pids.push_back(world.peers[rank].pid);
  meet_ranks(pids, std::max(world.local_size - static_cast<int>(pids.size()), 0));
}

constexpr const char* name_of_transport(int32_t transport) {
  switch (transport) {
    case HVD_TRANSPORT_SINGLE:
      return "single";
    case HVD_TRANSPORT_SHM:
      return "shm";
    case HVD_TRANSPORT_TCP:
      return "tcp";
    case HVD_TRANSPORT_HIERARCHICAL:
      return "hierarchical";
    case HVD_TRANSPORT_MPI:
      return "mpi";
    default:
      return "unknown";
  }
}

RecordedRank recorded(const hvd_world& world) {
  RecordedRank rank{world.rank, world.size, world.local_rank, getpid(), name_of_transport(world.transport),
                    {}};
  for (int32_t peer = 0; peer < world.size; ++peer) rank.hosts.emplace_back(world.peers[peer].host);
  return rank;
}

// The channels between ranks that share memory go through it.
void take_rings(const hvd_world& world, const std::vector<Branch>& branches, Engine::Parts* parts) {
  if (world.control_in_memory == 0 || !parts->memory) return;
  std::vector<int> place(static_cast<size_t>(world.size), -1);  // among the ranks of this host
  int ranks = 0;
  for (int rank = 0; rank < world.size; ++rank)
    if (world.hosts == nullptr || world.hosts[rank] == world.hosts[world.rank])
      place[static_cast<size_t>(rank)] = ranks++;
  auto& rings =
      *reinterpret_cast<wire::ControlRings*>(static_cast<std::byte*>(parts->memory.get()) + shm_bytes(ranks));
  const int own = place[static_cast<size_t>(world.rank)];
  for (size_t i = 1; i < branches.size(); ++i) {
    const int below = place[static_cast<size_t>(branches[i].rank)];
    if (below >= 0) parts->control_below[i].use(wire::RingEnd::of_hub(rings, below, own));
  }
  const int above = place[static_cast<size_t>(parts->parents[static_cast<size_t>(world.rank)])];
  if (world.rank != 0 && above >= 0) parts->control.use(wire::RingEnd::of_rank(rings, own, above));
}

int keep(int fd, Engine::Parts* parts) {
  if (fd >= 0) parts->descriptors.push_back(fd);
  return fd;
}

// Takes over what the transport needs, also when it fails.
Status take_transport(const hvd_world& world, const AbortSignal& abort, Engine::Parts* parts) {
  switch (world.transport) {
    case HVD_TRANSPORT_SINGLE:
      parts->transport = make_single_transport();
      return {};
    case HVD_TRANSPORT_SHM:
      if (!map_shared(world.shm_fd, world.size, world.rank, parts))
        return Status::unknown("Can't map the shared memory of the job.");
      parts->transport = make_shm_transport(parts->memory.get(), world.rank, world.size, abort, parts->heap);
      parts->meeting = static_cast<std::byte*>(parts->memory.get()) + meeting_offset(world.size);
      return {};
    case HVD_TRANSPORT_TCP:
    case HVD_TRANSPORT_HIERARCHICAL: {
      std::vector<int> mesh_fds(world.mesh_fds, world.mesh_fds + world.size * streams_of(world));
      for (int fd : mesh_fds) keep(fd, parts);
      std::vector<LinkKeys> keys(world.mesh_keys == nullptr ? 0 : mesh_fds.size());
      static_assert(sizeof(LinkKeys) == HVD_MESH_KEYS_BYTES);
      if (!keys.empty()) std::memcpy(keys.data(), world.mesh_keys, keys.size() * sizeof(LinkKeys));
      if (world.transport == HVD_TRANSPORT_HIERARCHICAL)
        return take_hosts(world, mesh_fds, keys, abort, parts);
      parts->transport = make_tcp_transport(mesh_fds, world.rank, abort, keys, streams_of(world));
      return {};
    }
    case HVD_TRANSPORT_MPI: {
      std::unique_ptr<MpiCalls> calls = world.mpi == nullptr ? nullptr : make_mpi_calls(*world.mpi);
      if (!calls)
        return Status::invalid("The mpi transport needs hvd_world.mpi, with handles of 4 or 8 bytes.");
      parts->transport = make_mpi_transport(std::move(calls), world.rank, world.size, abort);
      return {};
    }
    default:
      return Status::invalid("Unknown transport " + std::to_string(world.transport) + ".");
  }
}

// One entry of control_fds or liveness_fds.
wire::Channel take_channel(const int32_t* fds, const uint8_t* all_keys, int entry, Engine::Parts* parts) {
  wire::Keys keys;
  static_assert(sizeof keys == HVD_CHANNEL_KEYS_BYTES);
  if (all_keys != nullptr)
    std::memcpy(&keys, all_keys + static_cast<size_t>(entry) * sizeof keys, sizeof keys);
  return wire::Channel(keep(fds[entry], parts), all_keys == nullptr ? nullptr : &keys);
}

}  // namespace

size_t host_memory_bytes(int ranks) { return meeting_offset(ranks) + Meeting::bytes(ranks); }

size_t host_memory_with_heap_bytes(int ranks) { return heap_offset(ranks) + SharedHeap::useful_bytes(ranks); }

Status take_world(const hvd_world& world, const AbortSignal& abort, Engine::Parts* parts) {
  const bool coordinates = world.rank == 0;
  parts->rank = world.rank;
  parts->size = world.size;
  parts->affinity = world.affinity;
  parts->recorded = recorded(world);
  for (int32_t rank = 0; rank < world.size; ++rank)
    parts->peers.push_back({world.peers[rank].host, world.peers[rank].pid});
  meet_ranks_of(world);  // before anybody asks whether it is crowded
  parts->spin = world.local_size > 0 && !crowded(world.local_size);
  parts->parents.assign(static_cast<size_t>(world.size), 0);
  if (world.control_parents != nullptr)
    std::copy_n(world.control_parents, world.size, parts->parents.begin());
  const bool tree = is_tree(parts->parents);
  if (!tree) parts->parents.assign(parts->parents.size(), 0);
  const std::vector<Branch> branches = branches_of(world.rank, parts->parents);
  const int above = parts->parents[static_cast<size_t>(world.rank)];
  parts->control_below.resize(branches.size());
  for (size_t i = 1; i < branches.size(); ++i)
    parts->control_below[i] = take_channel(world.control_fds, world.control_keys, branches[i].rank, parts);
  if (!coordinates) parts->control = take_channel(world.control_fds, world.control_keys, above, parts);
  auto watch = [&](int rank) {
    parts->watched.push_back({PeerProcess(rank, world.peers[rank]),
                              take_channel(world.liveness_fds, world.liveness_keys, rank, parts),
                              world.control_fds[rank]});
  };
  if (!coordinates) watch(above);
  for (size_t i = 1; i < branches.size(); ++i) watch(branches[i].rank);
  Status status = take_transport(world, abort, parts);
  if (!tree) status = Status::invalid("hvd_world.control_parents must lead from every rank to rank 0.");
  if (status.ok()) take_rings(world, branches, parts);
  if (status.ok() && world.knobs != nullptr)
    status = take_struct(world.knobs, "hvd_knobs", sizeof world.knobs->struct_size, &parts->knobs);
  return status;
}

}  // namespace hvd
