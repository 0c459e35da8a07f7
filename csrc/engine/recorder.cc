#include "engine/recorder.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <utility>

#include "base/thread.h"
#include "base/turns.h"
#include "engine/json_array_file.h"
#include "engine/record_file.h"
#include "engine/record_folding.h"
#include "engine/timeline.h"

namespace hvd {
namespace {

// How long a record may stay in memory.
constexpr auto kInterval = std::chrono::milliseconds(50);
constexpr uint64_t kLast = 100'000'000;  // ns that the last ones are waited for

uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// What all threads of this process have used.
uint64_t processor_ns() { return nanoseconds(CLOCK_PROCESS_CPUTIME_ID); }

// How long the main thread could have run but had no processor; 0 if the kernel does not tell.
uint64_t waited_for_processor_ns() {
  std::ifstream file("/proc/self/schedstat");
  uint64_t ran = 0, waited = 0;
  return file >> ran >> waited ? waited : 0;
}

}  // namespace

uint64_t now_ns() { return nanoseconds(CLOCK_MONOTONIC); }

uint16_t thread_number() {
  static std::atomic<uint16_t> last{0};
  thread_local const auto mine = static_cast<uint16_t>(last.fetch_add(1) + 1);
  return mine;
}

// What the writer writes to; a file that failed is left alone from then on.
struct Recorder::Files {
  JsonArrayFile trace;
  std::unique_ptr<Timeline> timeline;
  RecordFile part;
  bool warned = false;
};

Recorder::Recorder(RecordedRank rank, int64_t buffer, const Log& log)
    : rank_(std::move(rank)),
      buffer_(static_cast<size_t>(std::max<int64_t>(buffer, 0))),
      log_(log),
      origin_(now_ns()),
      epoch_(static_cast<int64_t>(nanoseconds(CLOCK_REALTIME) / 1000)) {}

Recorder::~Recorder() { stop(); }

Status Recorder::start(const std::string& path, bool mark_cycles, bool parts) {
  std::lock_guard<std::mutex> only_one(start_mutex_);
  if (active() && path == path_) return {};
  stop_writer("");
  if (rank_.rank != 0 && !parts) return {};
  auto files = std::make_unique<Files>();
  if (rank_.rank == 0) {
    Status status =
        files->trace.open(path, parts ? JsonArrayFile::Writes::kLong : JsonArrayFile::Writes::kShort);
    if (!status.ok()) return status;
    files->timeline =
        std::make_unique<Timeline>(origin_, epoch_, mark_cycles, rank_.transport == "mpi" ? "MPI" : "GLOO",
                                   [&trace = files->trace](const std::string& event) { trace.add(event); });
    status = files->trace.flush();
    if (!status.ok()) return status;
  }
  if (parts) {
    Status status = files->part.open(path + ".rank" + std::to_string(rank_.rank) + ".part", rank_);
    if (!status.ok()) return status;
  }
  path_ = path;
  files_ = std::move(files);
  if (!ring_) ring_ = std::make_unique<RecordRing>(buffer_);
  ring_->take([](const Record&) {});  // of threads that had not noticed the last stop
  lost_ = 0;
  stopping_ = false;
  marks_cycles_ = mark_cycles;
  add(now_ns(), RecordKind::kWorld, 0, {}, 0, static_cast<uint64_t>(rank_.size));
  writer_ = start_thread("hvd-recorder", [this] { write_until_stopped(); });
  active_.store(true, std::memory_order_release);
  return {};
}

void Recorder::stop(const std::string& reason) {
  std::lock_guard<std::mutex> only_one(start_mutex_);
  stop_writer(reason);
}

// The caller holds start_mutex_.
void Recorder::stop_writer(const std::string& reason) {
  if (!writer_.joinable()) return;
  active_.store(false, std::memory_order_relaxed);
  if (!reason.empty()) add(now_ns(), RecordKind::kAbort, 0, {});
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  if (files_->timeline) {
    files_->timeline->end(now_ns());
    (void)files_->trace.flush();
  }
  if (files_->part.is_open()) (void)files_->part.end(dropped(), reason);
  files_.reset();
}

// The writer should hurry, or was not quick enough.
void Recorder::full(RecordRing::Added added) {
  if (added == RecordRing::Added::kHalf) return changed_.notify_one();
  lost_.fetch_add(1, std::memory_order_relaxed);
  dropped_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::mark(const std::string& name, int phase, uint64_t step) {
  constexpr RecordKind kinds[] = {RecordKind::kMark, RecordKind::kMarkBegin, RecordKind::kMarkEnd,
                                  RecordKind::kStep};
  const bool is_step = phase == 3;
  const uint64_t argument = is_step ? processor_ns() : thread_number();
  add(now_ns(), kinds[phase], names_.of_mark(name), {}, 0, is_step ? step : 0, argument);
}

void Recorder::clock(int peer, int64_t offset, uint64_t round_trip) {
  add(now_ns(), RecordKind::kClock, 0, {}, static_cast<uint16_t>(peer), round_trip,
      static_cast<uint64_t>(offset));
}

// ---- the writer

void Recorder::write_until_stopped() {
  stand_back();  // the ranks need the processors
  std::vector<Record> folded;
  RecordFolding folding(rank_.size, rank_.rank == 0, marks_cycles_);
  size_t names = 0;
  for (bool stopping = false; !stopping;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (!stopping_) changed_.wait_for(lock, kInterval);  // woken early by nothing: it just writes less
      stopping = stopping_;
    }
    folded.clear();
    auto fold = [&](const Record& record) { folding.add(record, &folded); };
    ring_->take(fold);
    // A thread may be about to complete one; but it may also have been stopped there.
    for (const uint64_t limit = now_ns() + kLast; stopping && !ring_->empty() && now_ns() < limit;) {
      std::this_thread::yield();
      ring_->take(fold);
    }
    folding.flush(&folded);
    if (const uint64_t lost = lost_.exchange(0))
      folded.push_back({now_ns(), 0, 0, 0, 0, RecordKind::kDropped, 0, 0, lost});
    folded.push_back(
        {now_ns(), 0, 0, 0, 0, RecordKind::kProcessor, 0, waited_for_processor_ns(), processor_ns()});
    // After the records: what they refer to is there by now.
    const std::vector<RecordedName> fresh = names_.since(names);
    names += fresh.size();
    write(folded, fresh);
  }
}

void Recorder::write(const std::vector<Record>& records, const std::vector<RecordedName>& names) {
  auto trouble = [this](const Status& status) {
    if (status.ok() || std::exchange(files_->warned, true)) return status.ok();
    log_.warning(status.text() + " The rest is left out; the job goes on.");
    return false;
  };
  if (files_->timeline) {
    files_->timeline->names(names);
    for (const Record& record : records) files_->timeline->record(record);
    trouble(files_->trace.flush());
  }
  if (!files_->part.is_open()) return;
  if (!trouble(files_->part.names(names)) || !trouble(files_->part.records(records))) files_->part.close();
}

}  // namespace hvd
