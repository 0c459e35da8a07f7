// Records what a rank does, for the timeline. A record is a few stores under a lock that is held for no more
// than that; a thread of its own writes them to files, so that a slow or full file system slows nobody down.
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
#include "engine/operation_numbers.h"
#include "engine/record.h"
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

  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Rank 0 writes a Chrome trace to `path`; with `parts` every rank all its records to a file beside it.
  // Nothing happens if it is being written already.
  Status start(const std::string& path, bool mark_cycles, bool parts);
  // Returns when everything is in the files. `reason` is why the engine failed, if it did.
  void stop(const std::string& reason = "");
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  // Several records of one moment.
  class Moment {
   public:
    explicit Moment(Recorder& recorder) : recorder_(recorder), lock_(recorder.mutex_), time_(now_ns()) {}
    uint32_t name(const wire::Request& request) { return recorder_.names_.of(request); }
    uint32_t name(const std::string& text) { return recorder_.names_.of(text); }
    uint32_t mark(const std::string& text) { return recorder_.names_.of_mark(text); }
    void add(RecordKind kind, uint32_t name, OperationNumber number, uint16_t extra = 0, uint64_t bytes = 0,
             uint64_t argument = 0);

   private:
    Recorder& recorder_;
    std::lock_guard<std::mutex> lock_;
    const uint64_t time_;
  };

  // hvd_mark(); `step` is the number of the step.
  void mark(const std::string& name, int phase, uint64_t step);
  // How far rank `peer`'s clock is ahead.
  void clock(int peer, int64_t offset, uint64_t round_trip);
  void wait(bool begins, const wire::Request& request, int64_t handle);

 private:
  struct Files;
  void stop_writer(const std::string& reason);
  void write_until_stopped();
  void write(const std::vector<Record>& records, const std::vector<RecordedName>& names);

  const RecordedRank rank_;
  const size_t capacity_;
  const Log& log_;
  const uint64_t origin_;  // when the engine started
  const int64_t epoch_;    // the microsecond of the wall clock then

  std::mutex start_mutex_;  // of start() and stop()
  std::string path_;
  std::unique_ptr<Files> files_;  // the writer's while it runs
  std::thread writer_;

  std::atomic<bool> active_{false};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool recording_ = false, stopping_ = false;
  std::vector<Record> records_;
  RecordedNames names_;
  uint64_t lost_ = 0;  // since the last record that says so
};

// A small number for the calling thread.
uint16_t thread_number();

}  // namespace hvd
