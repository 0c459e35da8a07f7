// A world whose ranks are threads of one process, over the real C ABI: so that sanitizers see all of them at
// once.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "hvd.h"
#include "test_knobs.h"

struct WorldOptions {
  int transport = HVD_TRANSPORT_SHM;
  std::vector<int32_t> hosts = {};  // of the ranks, for the hierarchical transport
  hvd_knobs knobs = test_knobs();
  std::vector<int32_t> parents = {};  // of the tree; none: rank 0 is above all
};

class Rank;

class ThreadWorld {
 public:
  explicit ThreadWorld(int size, WorldOptions options = {}) : size_(size), options_(options) {}
  // Starts one engine per rank, runs `body` on each in its own thread, shuts all down.
  void run(const std::function<void(Rank&)>& body);

 private:
  int size_;
  WorldOptions options_;
};

// What a check needs of one rank.
class Rank {
 public:
  Rank(hvd_engine* engine, int rank, int size) : engine(engine), rank(rank), size(size) {}
  hvd_engine* engine;
  const int rank, size;

  hvd_handle submit(const hvd_request& request) { return hvd_submit(engine, &request); }
  int wait(hvd_handle handle) {
    CHECK(handle > 0);
    for (;;) {
      int code = hvd_wait(engine, handle, 100.0);
      CHECK(code != HVD_IN_PROGRESS);
      if (code != HVD_INTERRUPTED) return code;
    }
  }
  // Waits, releases and returns the code; the number an operation gives goes to *result.
  int finish(hvd_handle handle, int64_t* result = nullptr) {
    int code = wait(handle);
    if (result) *result = hvd_result(engine, handle);
    hvd_release(engine, handle);
    return code;
  }
  static hvd_request request(int kind, const char* name) {
    hvd_request request{};
    request.struct_size = sizeof request;
    request.kind = kind;
    request.name = name;
    request.reduce_op = HVD_SUM;
    request.prescale = request.postscale = 1.0;
    return request;
  }
  // Of one tensor with `rows` elements; `to` may be the same memory as `from`.
  hvd_handle reduce_async(int kind, const std::string& name, int dtype, const void* from, void* to,
                          int64_t rows, int op, double prescale = 1.0, double postscale = 1.0, int set = 0) {
    hvd_tensor tensor{from, to, &rows, 1, dtype, HVD_CPU, 0};
    hvd_request request = Rank::request(kind, name.c_str());
    request.reduce_op = op;
    request.prescale = prescale;
    request.postscale = postscale;
    request.process_set = set;
    request.tensor_count = 1;
    request.tensors = &tensor;
    return submit(request);
  }
  hvd_handle allreduce_async(const std::string& name, std::vector<float>& data, int op = HVD_SUM,
                             int set = 0) {
    return reduce_async(HVD_ALLREDUCE, name, HVD_FLOAT32, data.data(), data.data(),
                        static_cast<int64_t>(data.size()), op, 1.0, 1.0, set);
  }
  int allreduce(const std::string& name, std::vector<float>& data, int op = HVD_SUM, int set = 0) {
    return finish(allreduce_async(name, data, op, set));
  }
  // An allreduce by a call of hvd_run(), for which the ranks may meet, to its end.
  int run(const std::string& name, std::vector<float>& data, int op = HVD_SUM, double prescale = 1.0,
          double postscale = 1.0, int set = 0) {
    const auto rows = static_cast<int64_t>(data.size());
    hvd_tensor tensor{data.data(), data.data(), &rows, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = Rank::request(HVD_ALLREDUCE, name.c_str());
    request.reduce_op = op;
    request.prescale = prescale;
    request.postscale = postscale;
    request.process_set = set;
    request.tensor_count = 1;
    request.tensors = &tensor;
    hvd_handle handle = 0;
    int code = hvd_run(engine, &request, 100.0, &handle);
    while (code == HVD_INTERRUPTED) code = hvd_wait(engine, handle, 100.0);
    CHECK(code != HVD_IN_PROGRESS);
    return code;
  }
  int simple(int kind, const char* name, int64_t* result = nullptr, int set = 0,
             std::vector<int32_t> numbers = {}) {
    hvd_request request = Rank::request(kind, name);
    request.process_set = set;
    request.numbers = numbers.data();
    request.number_count = static_cast<int32_t>(numbers.size());
    hvd_handle handle = submit(request);
    if (handle < 0) return static_cast<int>(handle);
    return finish(handle, result);
  }
};

inline void ThreadWorld::run(const std::function<void(Rank&)>& body) {
  const auto n = static_cast<size_t>(size_);
  auto pairs = [&] {
    std::vector<std::vector<int>> ends(n, std::vector<int>(n, -1));
    for (size_t a = 0; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        ends[a][b] = pair[0];
        ends[b][a] = pair[1];
      }
    return ends;
  };
  // Only the pairs of a rank and the one above it.
  auto tree = [&](const std::vector<int32_t>& parents) {
    std::vector<std::vector<int>> ends(n, std::vector<int>(n, -1));
    for (size_t r = 1; r < n; ++r) {
      int pair[2];
      CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
      const auto above = static_cast<size_t>(parents[r]);
      ends[r][above] = pair[0];
      ends[above][r] = pair[1];
    }
    return ends;
  };
  const bool hierarchical = options_.transport == HVD_TRANSPORT_HIERARCHICAL && size_ > 1;
  const bool tcp = (options_.transport == HVD_TRANSPORT_TCP && size_ > 1) || hierarchical;
  const bool shm = options_.transport == HVD_TRANSPORT_SHM && size_ > 1;
  const std::vector<int32_t> star(n, 0), parents = options_.parents.empty() ? star : options_.parents;
  CHECK(parents.size() == n);
  auto control = tree(parents), liveness = tree(parents);
  auto mesh = tcp ? pairs() : std::vector<std::vector<int>>(n);
  const std::vector<int32_t> hosts = hierarchical ? options_.hosts : std::vector<int32_t>(n, 0);
  CHECK(hosts.size() == n);
  std::map<int32_t, int> memories;  // by host
  for (int32_t host : hosts) {
    const auto here = static_cast<int32_t>(std::count(hosts.begin(), hosts.end(), host));
    if (!(shm || hierarchical) || here == 1 || memories.count(host) > 0) continue;
    memories[host] = memfd_create("hvd-test", MFD_CLOEXEC);
    CHECK(ftruncate(memories[host], hvd_shm_bytes(here)) == 0);
  }
  std::vector<hvd_peer> peers(n, {"thread", static_cast<int32_t>(getpid()), 1});
  std::vector<std::thread> threads;
  for (size_t r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      hvd_world world{};
      world.struct_size = sizeof world;
      world.rank = static_cast<int32_t>(r);
      world.size = size_;
      world.transport = size_ == 1 ? HVD_TRANSPORT_SINGLE : options_.transport;
      world.peers = peers.data();
      world.control_fds = control[r].data();
      world.liveness_fds = liveness[r].data();
      world.mesh_fds = tcp ? mesh[r].data() : nullptr;
      auto memory = memories.find(hosts[r]);
      world.shm_fd = memory != memories.end() ? dup(memory->second) : -1;
      world.hosts = hierarchical ? hosts.data() : nullptr;
      world.knobs = &options_.knobs;
      world.affinity = -1;
      world.local_size = size_;
      world.control_in_memory = 1;
      world.control_parents = options_.parents.empty() ? nullptr : parents.data();
      hvd_engine* engine = hvd_create(&world);
      CHECK(engine != nullptr);
      Rank rank(engine, static_cast<int>(r), size_);
      body(rank);
      hvd_shutdown(engine);
      hvd_destroy(engine);
    });
  for (std::thread& thread : threads) thread.join();
  for (auto [host, memory] : memories) close(memory);
}
