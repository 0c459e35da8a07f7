// Records what a rank does, for the timeline. A record is a few stores into a ring, without a lock; a thread
// of its own writes them to files, so that a slow or full file system slows nobody down.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "comm/course.h"
#include "engine/operation_numbers.h"
#include "engine/record.h"
#include "engine/record_ring.h"
#include "engine/recorded_names.h"
#include "wire/messages.h"

namespace hvd {

// Nanoseconds of CLOCK_MONOTONIC, which is one clock for all processes of a host.
uint64_t now_ns();

class Recorder {
 public:
  // At most `buffer` bytes of records are kept until they are written; what does not fit is counted.
  Recorder(RecordedRank rank, int64_t buffer, const Log& log);
  ~Recorder();

  bool active() const { return active_.load(std::memory_order_acquire); }
  // Is somebody interested in kCycle?
  bool marks_cycles() const { return marks_cycles_.load(std::memory_order_relaxed) && active(); }
  // Rank 0 writes a Chrome trace to `path`; with `parts` every rank all its records to a file beside it.
  // Nothing happens if it is being written already.
  Status start(const std::string& path, bool mark_cycles, bool parts);
  // Returns when everything is in the files. `reason` is why the engine failed, if it did.
  void stop(const std::string& reason = "");
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // While it is active. Callers have the time from something else that they measure; threads may be a moment
  // apart, so the times of different kinds of records may be, too.
  void add(uint64_t time, RecordKind kind, uint32_t name, OperationNumber number, uint16_t extra = 0,
           uint64_t bytes = 0, uint64_t argument = 0) {
    const auto added = ring_->add(
        {time, number.operation, number.set, number.generation, name, kind, extra, bytes, argument});
    if (added != RecordRing::Added::kYes) full(added);
  }
  RecordedNames& names() { return names_; }

  // hvd_mark(); `step` is the number of the step.
  void mark(const std::string& name, int phase, uint64_t step);
  // How far rank `peer`'s clock is ahead.
  void clock(int peer, int64_t offset, uint64_t round_trip);

 private:
  struct Files;
  void stop_writer(const std::string& reason);
  void write_until_stopped();
  void full(RecordRing::Added added);
  void write(const std::vector<Record>& records, const std::vector<RecordedName>& names);

  const RecordedRank rank_;
  const size_t buffer_;
  const Log& log_;
  const uint64_t origin_;  // when the engine started
  const int64_t epoch_;    // the microsecond of the wall clock then

  std::mutex start_mutex_;  // of start() and stop()
  std::string path_;
  std::unique_ptr<Files> files_;  // the writer's while it runs
  std::thread writer_;

  std::atomic<bool> active_{false}, marks_cycles_{false};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> lost_{0};     // since the last record that says so
  std::unique_ptr<RecordRing> ring_;  // from the first start() on, as a thread may be late to notice a stop
  RecordedNames names_;
  std::mutex mutex_;  // guards stopping_
  std::condition_variable changed_;
  bool stopping_ = false;
};

// Records the course of an operation.
class RecordedCourse final : public Course {
 public:
  RecordedCourse(Recorder& recorder, OperationNumber number, uint32_t name)
      : recorder_(recorder), number_(number), name_(name) {}
  void phase(Phase phase, uint64_t begin, uint64_t end, size_t bytes) override {
    recorder_.add(begin, RecordKind::kPhase, name_, number_, static_cast<uint16_t>(phase), bytes,
                  end - begin);
  }

 private:
  Recorder& recorder_;
  const OperationNumber number_;
  const uint32_t name_;
};

// A small number for the calling thread.
uint16_t thread_number();

}  // namespace hvd
