#include "engine/recorder.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/thread.h"
#include "engine/json_array_file.h"
#include "engine/record_file.h"
#include "engine/timeline.h"

namespace hvd {
namespace {

// How long a record may stay in memory.
constexpr auto kInterval = std::chrono::milliseconds(50);

uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// What all threads of this process have used.
uint64_t processor_ns() { return nanoseconds(CLOCK_PROCESS_CPUTIME_ID); }

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
      capacity_(std::max<size_t>(static_cast<size_t>(buffer) / sizeof(Record), 16)),
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
    Status status = files->trace.open(path);
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
  {
    std::lock_guard<std::mutex> lock(mutex_);
    records_.clear();
    records_.reserve(capacity_);
    names_ = {};
    lost_ = 0;
    recording_ = true;
    stopping_ = false;
  }
  Moment(*this).add(RecordKind::kWorld, 0, {}, 0, static_cast<uint64_t>(rank_.size));
  writer_ = start_thread("hvd-recorder", [this] { write_until_stopped(); });
  active_.store(true, std::memory_order_relaxed);
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
  if (!reason.empty()) Moment(*this).add(RecordKind::kAbort, 0, {});
  {
    std::lock_guard<std::mutex> lock(mutex_);
    recording_ = false;
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

void Recorder::Moment::add(RecordKind kind, uint32_t name, OperationNumber number, uint16_t extra,
                           uint64_t bytes, uint64_t argument) {
  if (!recorder_.recording_) return;
  std::vector<Record>& records = recorder_.records_;
  if (records.size() + 2 >= recorder_.capacity_) {  // the last ones are the writer's
    recorder_.lost_++;
    recorder_.dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  records.push_back(
      {time_, number.operation, number.set, number.generation, name, kind, extra, bytes, argument});
  if (records.size() == recorder_.capacity_ / 2) recorder_.changed_.notify_one();
}

void Recorder::mark(const std::string& name, int phase, uint64_t step) {
  constexpr RecordKind kinds[] = {RecordKind::kMark, RecordKind::kMarkBegin, RecordKind::kMarkEnd,
                                  RecordKind::kStep};
  const bool is_step = phase == 3;
  const uint64_t argument = is_step ? processor_ns() : thread_number();
  Moment moment(*this);
  moment.add(kinds[phase], moment.mark(name), {}, 0, is_step ? step : 0, argument);
}

void Recorder::clock(int peer, int64_t offset, uint64_t round_trip) {
  Moment(*this).add(RecordKind::kClock, 0, {}, static_cast<uint16_t>(peer), round_trip,
                    static_cast<uint64_t>(offset));
}

void Recorder::wait(bool begins, const wire::Request& request, int64_t handle) {
  Moment moment(*this);
  moment.add(begins ? RecordKind::kWaitBegin : RecordKind::kWaitEnd, moment.name(request),
             {0, static_cast<uint16_t>(request.process_set), 0}, thread_number(), 0,
             static_cast<uint64_t>(handle));
}

// ---- the writer

void Recorder::write_until_stopped() {
  std::vector<Record> taken;
  taken.reserve(capacity_);
  for (bool stopping = false; !stopping;) {
    std::vector<RecordedName> names;
    taken.clear();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, kInterval, [this] { return stopping_ || records_.size() >= capacity_ / 2; });
      stopping = stopping_;
      if (lost_ > 0)
        records_.push_back({now_ns(), 0, 0, 0, 0, RecordKind::kDropped, 0, 0, std::exchange(lost_, 0)});
      records_.push_back({now_ns(), 0, 0, 0, 0, RecordKind::kProcessor, 0, 0, processor_ns()});
      std::swap(taken, records_);
      names = names_.take_fresh();
    }
    write(taken, names);
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
