// The C ABI on top of Engine.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "base/event.h"
#include "base/processors.h"
#include "comm/cipher.h"
#include "comm/mpi_calls.h"
#include "engine/engine.h"
#include "hvd.h"

struct hvd_engine {
  std::shared_ptr<hvd::Engine> shared;
  hvd_place place;
  hvd::Engine& engine;
};

namespace {

using namespace hvd;

thread_local std::string last_error;

// The engine that native adapters use. Beside what processors.h knows the one state of the whole library.
struct Default {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  hvd_place place{};
};
std::atomic<Default*>& default_instance() {
  static std::atomic<Default*> instance =
      new Default;  // never destroyed: other threads may still run at exit
  return instance;
}
Default& default_engine() { return *default_instance().load(std::memory_order_acquire); }

std::shared_ptr<Engine> get_default(hvd_place* place = nullptr) {
  Default& current = default_engine();
  std::lock_guard<std::mutex> lock(current.mutex);
  if (place != nullptr) *place = current.place;
  return current.engine;
}

Status not_initialized() {
  return Status::precondition("Horovod has not been initialized; call hvd.init() first.");
}

int32_t fail(Status status) {
  last_error = status.text();
  return status.code();
}

std::shared_ptr<void> map_shared(int fd, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [bytes](void* address) { munmap(address, bytes); }};
}

// Takes over the mesh and the memory of this host, also when it fails.
Status take_hosts(const hvd_world& world, std::vector<int> peers, const std::vector<LinkKeys>& keys,
                  const AbortSignal& abort, Engine::Parts* parts) {
  auto give_up = [&](Status status) {
    for (int fd : peers)
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
    parts->memory = map_shared(world.shm_fd, shm_bytes(here));
    if (!parts->memory)
      return give_up(Status::unknown("Can't map the memory that the ranks of this host share."));
  }
  parts->transport = make_hierarchical_transport(parts->memory.get(), std::move(hosts), std::move(peers),
                                                 world.rank, abort, keys);
  return {};
}

void meet_ranks_of(const hvd_world& world) {
  std::vector<int> pids = {getpid()};
  for (int32_t rank = 0; rank < world.size; ++rank)
    if (rank != world.rank && world.peers[rank].same_host) pids.push_back(world.peers[rank].pid);
  meet_ranks(pids, std::max(world.local_size - static_cast<int>(pids.size()), 0));
}

// Takes over every descriptor of the world, also when it fails.
Status take_world(const hvd_world& world, AbortSignal* abort, Engine::Parts* parts) {
  const bool coordinates = world.rank == 0;
  parts->rank = world.rank;
  parts->size = world.size;
  parts->peer_timeout = world.peer_timeout;
  parts->affinity = world.affinity;
  meet_ranks_of(world);  // before anybody asks whether it is crowded
  parts->spin = world.local_size > 0 && !crowded(world.local_size);
  parts->coordinator.negotiation.fusion_threshold = world.fusion_threshold;
  parts->coordinator.negotiation.cache_capacity = world.cache_capacity;
  parts->coordinator.negotiation.disable_group_fusion = world.disable_group_fusion != 0;
  parts->coordinator.stall_warning = world.stall_warning;
  parts->coordinator.stall_shutdown = world.stall_shutdown;
  auto own = [&](int fd) {
    if (fd >= 0) parts->descriptors.push_back(fd);
    return fd;
  };
  auto keys = [](const uint8_t* all, int entry, wire::Keys* keys) -> const wire::Keys* {
    if (all == nullptr) return nullptr;
    static_assert(sizeof(wire::Keys) == HVD_CHANNEL_KEYS_BYTES);
    std::memcpy(keys, all + static_cast<size_t>(entry) * sizeof *keys, sizeof *keys);
    return keys;
  };
  if (coordinates) parts->control_ranks.resize(static_cast<size_t>(world.size));
  if (world.size > 1) {
    const int channels = coordinates ? world.size : 1;
    for (int i = 0; i < channels; ++i) {
      if (coordinates && i == 0) continue;
      wire::Keys control_keys, liveness_keys;
      wire::Channel control(own(world.control_fds[i]), keys(world.control_keys, i, &control_keys));
      if (coordinates) {
        parts->control_ranks[static_cast<size_t>(i)] = std::move(control);
      } else {
        parts->control = std::move(control);
      }
      parts->watched.push_back(
          {Peer(i, world.peers[i]),
           wire::Channel(own(world.liveness_fds[i]), keys(world.liveness_keys, i, &liveness_keys)),
           world.control_fds[i]});
    }
  }
  switch (world.transport) {
    case HVD_TRANSPORT_LOCAL:
      parts->transport = make_local_transport();
      return {};
    case HVD_TRANSPORT_SHM:
      parts->memory = map_shared(world.shm_fd, shm_bytes(world.size));
      if (!parts->memory) return Status::unknown("Can't map the shared memory of the job.");
      parts->transport = make_shm_transport(parts->memory.get(), world.rank, world.size, *abort);
      return {};
    case HVD_TRANSPORT_TCP:
    case HVD_TRANSPORT_HIERARCHICAL: {
      std::vector<int> peers(world.mesh_fds, world.mesh_fds + world.size);
      std::for_each(peers.begin(), peers.end(), own);
      std::vector<LinkKeys> keys(world.mesh_keys == nullptr ? 0 : peers.size());
      static_assert(sizeof(LinkKeys) == HVD_MESH_KEYS_BYTES);
      if (!keys.empty()) std::memcpy(keys.data(), world.mesh_keys, keys.size() * sizeof(LinkKeys));
      if (world.transport == HVD_TRANSPORT_HIERARCHICAL)
        return take_hosts(world, std::move(peers), keys, *abort, parts);
      parts->transport = make_tcp_transport(std::move(peers), world.rank, *abort, keys);
      return {};
    }
    case HVD_TRANSPORT_MPI: {
      std::unique_ptr<MpiCalls> calls = world.mpi == nullptr ? nullptr : make_mpi_calls(*world.mpi);
      if (!calls)
        return Status::invalid("The mpi transport needs hvd_world.mpi, with handles of 4 or 8 bytes.");
      parts->transport = make_mpi_transport(std::move(calls), world.rank, world.size, *abort);
      return {};
    }
    default:
      return Status::invalid("Unknown transport " + std::to_string(world.transport) + ".");
  }
}

hvd_handle submit(Engine& engine, const hvd_request& request) {
  try {
    hvd_handle handle = 0;
    Status status = engine.submit(request, &handle);
    return status.ok() ? handle : fail(status);
  } catch (const std::exception& error) {
    return fail(Status::unknown(std::string("Can't submit: ") + error.what()));
  }
}

}  // namespace

extern "C" {

int32_t hvd_abi_version(void) { return HVD_ABI_VERSION; }

int64_t hvd_shm_bytes(int32_t size) { return static_cast<int64_t>(shm_bytes(size)); }

int32_t hvd_can_encrypt(void) { return fail(Cipher::available()); }

hvd_engine* hvd_create(const hvd_world* world) {
  try {
    if (world->struct_size != sizeof(hvd_world)) {
      fail(Status::invalid("hvd_world has another size than this library expects."));
      return nullptr;
    }
    auto abort = std::make_unique<AbortSignal>();
    Status trouble = abort->fd() < 0 ? no_descriptor(errno) : Status();
    Engine::Parts parts;
    Status status = take_world(*world, abort.get(), &parts);
    if (status.ok()) status = std::move(trouble);
    if (status.ok()) {
      Log log(world->log_level, world->log_hide_time != 0, world->rank);
      auto engine = std::make_shared<Engine>(std::move(parts), log, std::move(abort));
      hvd_place place{world->rank, world->size, world->local_rank, world->local_size};
      return new hvd_engine{engine, place, *engine};
    }
    fail(status);
  } catch (const std::exception& error) {
    fail(Status::unknown(error.what()));
  }
  return nullptr;
}

void hvd_shutdown(hvd_engine* engine) { engine->engine.shutdown(); }

void hvd_destroy(hvd_engine* engine) { delete engine; }

void hvd_abort(hvd_engine* engine, const char* reason) { engine->engine.abort(reason); }

void hvd_after_fork_in_child(hvd_engine* engine) {
  engine->engine.after_fork_in_child();
  // A thread that is not here may have held the lock, so the old one stays as it is.
  default_instance().store(new Default, std::memory_order_release);
}

hvd_handle hvd_submit(hvd_engine* engine, const hvd_request* request) {
  return submit(engine->engine, *request);
}

void hvd_set_default(hvd_engine* engine) {
  std::shared_ptr<Engine> before;  // let go after the lock: it may be the last reference
  Default& current = default_engine();
  std::unique_lock<std::mutex> lock(current.mutex);
  before = std::move(current.engine);
  current.engine = engine == nullptr ? nullptr : engine->shared;
  current.place = engine == nullptr ? hvd_place{} : engine->place;
  lock.unlock();
}

hvd_handle hvd_submit_default(const hvd_request* request) {
  std::shared_ptr<Engine> engine = get_default();
  return engine ? submit(*engine, *request) : fail(not_initialized());
}

int32_t hvd_default_place(hvd_place* place) { return get_default(place) ? HVD_OK : fail(not_initialized()); }

int32_t hvd_default_process_set(int32_t id, int32_t* size, int32_t* included) {
  std::shared_ptr<Engine> engine = get_default();
  if (!engine) return fail(not_initialized());
  std::vector<int> ranks;
  if (!engine->process_set_ranks(id, &ranks))
    return fail(Status::invalid("There is no process set " + std::to_string(id) + "."));
  *size = static_cast<int32_t>(ranks.size());
  *included = std::binary_search(ranks.begin(), ranks.end(), engine->rank()) ? 1 : 0;
  return HVD_OK;
}

int32_t hvd_poll(hvd_engine* engine, hvd_handle handle) {
  auto task = engine->engine.task(handle);
  if (!task) return fail(Status::invalid("Unknown handle " + std::to_string(handle) + "."));
  return task->finished() ? 1 : 0;
}

int32_t hvd_wait(hvd_engine* engine, hvd_handle handle, double seconds) {
  auto task = engine->engine.task(handle);
  if (!task) return fail(Status::invalid("Unknown handle " + std::to_string(handle) + "."));
  int code = engine->engine.wait(*task, seconds);
  return code == HVD_OK && !task->status().ok() ? fail(task->status()) : code;
}

const char* hvd_error(hvd_engine* engine, hvd_handle handle) {
  auto task = engine->engine.task(handle);
  return task && task->finished() ? task->status().text().c_str() : "";
}

int64_t hvd_result(hvd_engine* engine, hvd_handle handle) {
  auto task = engine->engine.task(handle);
  return task ? task->result : 0;
}

int32_t hvd_output_ndim(hvd_engine* engine, hvd_handle handle, int32_t index) {
  auto task = engine->engine.task(handle);
  if (!task || index < 0 || static_cast<size_t>(index) >= task->tensors.size()) return HVD_INVALID_ARGUMENT;
  return static_cast<int32_t>(task->tensors[static_cast<size_t>(index)].output_shape.size());
}

int32_t hvd_output_shape(hvd_engine* engine, hvd_handle handle, int32_t index, int64_t* shape) {
  auto task = engine->engine.task(handle);
  if (!task || index < 0 || static_cast<size_t>(index) >= task->tensors.size()) return HVD_INVALID_ARGUMENT;
  const auto& from = task->tensors[static_cast<size_t>(index)].output_shape;
  std::copy(from.begin(), from.end(), shape);
  return HVD_OK;
}

void* hvd_take_output(hvd_engine* engine, hvd_handle handle, int32_t index) {
  auto task = engine->engine.task(handle);
  if (!task || index < 0 || static_cast<size_t>(index) >= task->tensors.size()) return nullptr;
  return task->tensors[static_cast<size_t>(index)].owned.release();
}

int32_t hvd_received_splits(hvd_engine* engine, hvd_handle handle, int32_t* splits, int32_t capacity) {
  auto task = engine->engine.task(handle);
  if (!task) return HVD_INVALID_ARGUMENT;
  auto count = static_cast<int32_t>(task->received_splits.size());
  std::copy_n(task->received_splits.begin(), std::min(count, capacity), splits);
  return count;
}

void hvd_free(void* memory) { std::free(memory); }

void hvd_release(hvd_engine* engine, hvd_handle handle) { engine->engine.release(handle); }

int32_t hvd_process_set_ids(hvd_engine* engine, int32_t* ids, int32_t capacity) {
  std::vector<int> all = engine->engine.process_set_ids();
  auto count = static_cast<int32_t>(all.size());
  std::copy_n(all.begin(), std::min(count, capacity), ids);
  return count;
}

int32_t hvd_process_set_ranks(hvd_engine* engine, int32_t id, int32_t* ranks, int32_t capacity) {
  std::vector<int> all;
  if (!engine->engine.process_set_ranks(id, &all)) return HVD_INVALID_ARGUMENT;
  auto count = static_cast<int32_t>(all.size());
  std::copy_n(all.begin(), std::min(count, capacity), ranks);
  return count;
}

int64_t hvd_joins(hvd_engine* engine) { return engine->engine.joins(); }

int32_t hvd_timeline_start(hvd_engine* engine, const char* path, int32_t mark_cycles) {
  if (engine->engine.rank() != 0) return HVD_OK;
  Status status = engine->engine.timeline().start(path, mark_cycles != 0);
  return status.ok() ? HVD_OK : fail(status);
}

int32_t hvd_timeline_stop(hvd_engine* engine) {
  engine->engine.timeline().stop();
  return HVD_OK;
}

const char* hvd_last_error(void) { return last_error.c_str(); }

}  // extern "C"
