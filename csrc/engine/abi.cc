// The C ABI on top of Engine.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/event.h"
#include "comm/tcp/cipher.h"
#include "engine/abi_struct.h"
#include "engine/engine.h"
#include "engine/world.h"
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

// What an operation must at least say; the rest came, or may come, later.
constexpr size_t kLeastRequest = offsetof(hvd_request, done);
constexpr size_t kLeastWorld = offsetof(hvd_world, mesh_fds);

// The request as this version has it: itself, or a copy in `other` if the caller was built with another one.
Status take_request(const hvd_request& request, hvd_request* other, const hvd_request** taken) {
  *taken = &request;
  if (request.struct_size == sizeof request) return {};
  *taken = other;
  return take_struct(&request, "hvd_request", kLeastRequest, other);
}

hvd_handle submit(Engine& engine, const hvd_request& request, bool waits = false) {
  try {
    hvd_handle handle = 0;
    hvd_request other{};
    const hvd_request* taken = nullptr;
    Status status = take_request(request, &other, &taken);
    if (status.ok()) status = engine.submit(*taken, &handle, waits);
    return status.ok() ? handle : fail(status);
  } catch (const std::exception& error) {
    return fail(Status::unknown(std::string("Can't submit: ") + error.what()));
  }
}

int32_t wait(Engine& engine, Task& task, double seconds) {
  const int code = engine.wait(task, seconds);
  return code == HVD_OK && !task.status().ok() ? fail(task.status()) : code;
}

}  // namespace

extern "C" {

int32_t hvd_abi_version(void) { return HVD_ABI_VERSION; }

int64_t hvd_shm_bytes(int32_t size) { return static_cast<int64_t>(host_memory_bytes(size)); }

int64_t hvd_shm_bytes_with_heap(int32_t size) {
  return static_cast<int64_t>(host_memory_with_heap_bytes(size));
}

int32_t hvd_can_encrypt(void) { return fail(Cipher::available()); }

hvd_engine* hvd_create(const hvd_world* given) {
  try {
    hvd_world world{};
    Status status = take_struct(given, "hvd_world", kLeastWorld, &world);
    if (!status.ok()) {
      fail(status);
      return nullptr;
    }
    auto abort = std::make_unique<AbortSignal>();
    Status trouble = abort->fd() < 0 ? no_descriptor(errno) : Status();
    Engine::Parts parts;
    status = take_world(world, *abort, &parts);
    if (status.ok()) status = std::move(trouble);
    if (status.ok()) {
      Log log(parts.knobs.log_level, parts.knobs.log_hide_time != 0, world.rank);
      auto engine = std::make_shared<Engine>(std::move(parts), log, std::move(abort));
      hvd_place place{world.rank, world.size, world.local_rank, world.local_size};
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

int32_t hvd_culprit(hvd_engine* engine, int32_t* silent) {
  const Status failure = engine->engine.failure();
  if (silent != nullptr) *silent = failure.silent() ? 1 : 0;
  return failure.culprit();
}

void hvd_after_fork_in_child(hvd_engine* engine) {
  engine->engine.after_fork_in_child();
  // A thread that is not here may have held the lock, so the old one stays as it is.
  default_instance().store(new Default, std::memory_order_release);
  SharedHeap::forget_all();
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

int32_t hvd_help_default(hvd_handle handle, double seconds) {
  std::shared_ptr<Engine> engine = get_default();
  return engine ? engine->help(handle, seconds) : HVD_IN_PROGRESS;
}

int32_t hvd_run_default(const hvd_request* request) {
  constexpr double kSlice = 3600.0;  // seconds
  std::shared_ptr<Engine> engine = get_default();
  if (!engine) return fail(not_initialized());
  hvd_request waited{};
  const Status readable = take_struct(request, "hvd_request", kLeastRequest, &waited);
  if (!readable.ok()) return fail(readable);
  const hvd_done_fn done =
      std::exchange(waited.done, nullptr);  // with it the engine would let go of the handle
  if (engine->run_at_once(waited)) {
    const hvd_outcome outcome{HVD_OK, "", 0, nullptr, 0};
    if (done != nullptr) done(waited.user, &outcome);
    return HVD_OK;
  }
  const hvd_handle handle = submit(*engine, waited, true);
  if (handle <= 0) return static_cast<int32_t>(handle);
  const std::shared_ptr<Task> task = engine->task(handle);
  while (engine->wait(*task, kSlice) > 0) {
  }
  engine->release(handle);
  const Status& status = task->status();
  if (done != nullptr) {
    const hvd_outcome outcome{status.code(), status.text().c_str(), task->result,
                              task->received_splits.data(),
                              static_cast<int32_t>(task->received_splits.size())};
    done(waited.user, &outcome);
  }
  return status.ok() ? HVD_OK : fail(status);
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

int32_t hvd_run(hvd_engine* engine, const hvd_request* request, double seconds, hvd_handle* handle) {
  *handle = 0;
  if (request->struct_size == sizeof *request && engine->engine.run_at_once(*request)) return HVD_OK;
  const hvd_handle submitted = submit(engine->engine, *request, true);
  if (submitted <= 0) return static_cast<int32_t>(submitted);
  *handle = submitted;
  const std::shared_ptr<Task> task = engine->engine.task(submitted);
  const int32_t code = wait(engine->engine, *task, seconds);
  if (code == HVD_OK) engine->engine.release(submitted);
  return code;
}

int32_t hvd_poll(hvd_engine* engine, hvd_handle handle) {
  auto task = engine->engine.task(handle);
  return !task || task->finished() ? 1 : 0;
}

int32_t hvd_wait(hvd_engine* engine, hvd_handle handle, double seconds) {
  auto task = engine->engine.task(handle);
  if (!task) return fail(Status::invalid("Unknown handle " + std::to_string(handle) + "."));
  return wait(engine->engine, *task, seconds);
}

int32_t hvd_finish(hvd_engine* engine, hvd_handle handle, double seconds) {
  auto task = engine->engine.task(handle);
  if (!task) return HVD_OK;
  const int32_t code = wait(engine->engine, *task, seconds);
  if (code == HVD_OK) engine->engine.release(handle);
  return code;
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

void hvd_free(void* memory) { Memory{memory}.reset(); }

void* hvd_allocate_shared(hvd_engine* engine, int64_t bytes) {
  return engine->engine.allocate_shared(static_cast<size_t>(bytes));
}

void hvd_free_shared(void* memory) { SharedHeap::free(memory); }

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

int32_t hvd_timeline_start(hvd_engine* engine, const char* path, int32_t flags) {
  try {
    Status status = engine->engine.recorder().start(path, (flags & HVD_TIMELINE_MARK_CYCLES) != 0,
                                                    (flags & HVD_TIMELINE_ALL_RANKS) != 0);
    return status.ok() ? HVD_OK : fail(status);
  } catch (const std::exception& error) {
    return fail(Status::unknown(std::string("Can't start the timeline: ") + error.what()));
  }
}

int32_t hvd_timeline_stop(hvd_engine* engine) {
  engine->engine.recorder().stop();
  return HVD_OK;
}

int32_t hvd_connect(hvd_engine* engine, int32_t rank, int32_t fd, const uint8_t* keys) {
  LinkKeys both{};
  if (keys != nullptr) std::memcpy(&both, keys, sizeof both);
  try {
    Status status = engine->engine.connect(rank, fd, keys == nullptr ? nullptr : &both);
    return status.ok() ? HVD_OK : fail(status);
  } catch (const std::exception& error) {
    close(fd);
    return fail(Status::unknown("Can't connect to rank " + std::to_string(rank) + ": " + error.what()));
  }
}

void hvd_mark(hvd_engine* engine, const char* name, int32_t phase) { engine->engine.mark(name, phase); }

void hvd_end_step(hvd_engine* engine, int64_t kind) { engine->engine.end_step(kind); }

void hvd_end_step_default(int64_t kind) {
  if (std::shared_ptr<Engine> engine = get_default()) engine->end_step(kind);
}

void hvd_log(hvd_engine* engine, int32_t level, const char* text) { engine->engine.log().write(level, text); }

int32_t hvd_autotune(hvd_engine* engine, const hvd_autotune_options* given) {
  try {
    hvd_autotune_options options{};
    Status status = take_struct(given, "hvd_autotune_options",
                                offsetof(hvd_autotune_options, keep_fusion_threshold), &options);
    if (status.ok() && (options.warmup_samples < 0 || options.steps_per_sample < 1))
      status = Status::invalid("A sample of the search for parameters has one step or more.");
    if (!status.ok()) return fail(status);
    Autotune::Options chosen;
    chosen.tuner = {options.steps_per_sample, options.warmup_samples, options.max_samples};
    chosen.keep_fusion = options.keep_fusion_threshold != 0;
    chosen.shuffle = options.shuffle != 0;
    if (options.suggested != nullptr)
      chosen.suggested.assign(options.suggested, options.suggested + kTunableCount);
    status = engine->engine.autotune(std::move(chosen));
    return status.ok() ? HVD_OK : fail(status);
  } catch (const std::exception& error) {
    return fail(Status::unknown(std::string("Can't search for parameters: ") + error.what()));
  }
}

const char* hvd_tunable_names(void) {
  static const std::string names = [] {
    std::string text;
    for (const Tunable& tunable : kTunables) text += std::string(tunable.name) + "\n";
    return text;
  }();
  return names.c_str();
}

const char* hvd_metric_names(void) {
  static const std::string names = Metrics::names();
  return names.c_str();
}

int32_t hvd_metrics(hvd_engine* engine, uint64_t* values, int32_t capacity) {
  return static_cast<int32_t>(engine->engine.metrics(values, static_cast<size_t>(std::max(capacity, 0))));
}

int32_t hvd_summaries(hvd_engine* engine, hvd_summary* summaries, int32_t capacity) {
  const std::vector<Summary> all = engine->engine.summaries();
  const auto now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < all.size() && i < static_cast<size_t>(std::max(capacity, 0)); ++i) {
    const Summary& from = all[i];
    const wire::Progress& progress = from.progress;
    hvd_summary& to = summaries[i];
    to = hvd_summary{};
    to.rank = all.size() > 1 ? static_cast<int32_t>(i) : engine->engine.rank();
    to.known = from.heard != std::chrono::steady_clock::time_point{};
    to.age = to.known ? std::chrono::duration<double>(now - from.heard).count() : 0.0;
    to.steps = progress.steps;
    to.operations = progress.operations;
    to.bytes = progress.bytes;
    to.blocked_ns = progress.blocked_ns;
    to.cpu_ns = progress.cpu_ns;
    to.resident_bytes = progress.resident_bytes;
    to.dropped = progress.dropped;
    to.pending = progress.pending;
    to.running_ns = progress.running_ns;
    to.idle_ns = progress.idle_ns;
    to.step_ns = progress.step_ns;
    to.last_ready = from.late.times;
    to.late_ns = static_cast<uint64_t>(from.late.cost.count());
    to.rtt_ns = progress.root.round_trip;
    to.clock_offset_ns = -progress.root.offset;
    to.waited_for = from.waited_for;
    progress.name.copy(to.name, HVD_SUMMARY_NAME - 1);
  }
  return static_cast<int32_t>(all.size());
}

int32_t hvd_next_event(hvd_engine* engine, double seconds, hvd_event* event) {
  Notice notice;
  if (!engine->engine.notices().next(seconds, &notice)) return 0;
  Memory text = allocate_memory(notice.text.size() + 1);
  if (text) std::memcpy(text.get(), notice.text.c_str(), notice.text.size() + 1);
  *event = {notice.kind, notice.rank, notice.number, notice.how, static_cast<char*>(text.release())};
  return 1;
}

void hvd_answer(hvd_engine* engine, uint32_t number, const char* text) {
  engine->engine.stacks().answered(number, text);
}

void hvd_stack_signal(hvd_engine* engine, int32_t signal, int32_t pipe) {
  engine->engine.stacks().use_signal(signal, pipe);
}

int32_t hvd_keep_recent(hvd_engine* engine, int32_t fd) {
  Status status = engine->engine.recent().keep_in(fd);
  return status.ok() ? HVD_OK : fail(status);
}

int64_t hvd_ask_stacks(hvd_engine* engine, int32_t rank, const char* reason) {
  const uint32_t number = engine->engine.ask_stacks(rank, reason);
  if (number != 0) return number;
  return fail(
      Status::invalid("Only rank 0 can ask for the stacks of other ranks, and of those that there are."));
}

const char* hvd_last_error(void) { return last_error.c_str(); }

}  // extern "C"
