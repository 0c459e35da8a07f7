// Rank 0's records as the events of a Chrome trace (chrome://tracing, Perfetto): a row for each name, with
// its negotiation, who became ready when, and its run. Pure: records in, JSON out. A busy job has a million
// events a second, and they are made on cores that it needs: so nothing is formatted twice, and no event
// allocates memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/record.h"

namespace hvd {

class Timeline {
 public:
  using Emit = std::function<void(const std::string& event)>;

  // `origin` is the time (ns) that the trace counts from, `epoch` the microsecond of the wall clock then.
  // `library` is what activities are said to be of: GLOO or MPI.
  Timeline(uint64_t origin, int64_t epoch, bool mark_cycles, std::string library, Emit emit);

  void names(const std::vector<RecordedName>& fresh);
  void record(const Record& record);
  // Closes the bars that are open.
  void end(uint64_t time);

 private:
  // What a number stands for, with the texts of its events.
  struct Label {
    RecordedName name;
    std::string negotiation, run, activity;  // with the key; no activity: its run is not shown
    std::string arguments;                   // type and shape
  };
  // Negotiation and run have a track each: a rank may have finished an operation and announce the next one of
  // the same name before this one has finished the first, and bars of one track must not overlap.
  struct Row {
    int number = 0;
    uint16_t set = 0;
    std::string negotiation_track, run_track;  // with the key of the time that follows
    bool negotiating = false, running = false;
    uint64_t negotiated = 0;       // the latest on the negotiation's track
    uint64_t released = 0;         // 0: not seen
    uint64_t ended = 0;            // the last bar of the run's track
    const Label* label = nullptr;  // of the run: it has kind and shape, which may change
  };

  Row* row(const Record& record);
  void ready(Row& row, const Record& record);
  void release(Row& row, uint64_t time);
  uint64_t negotiation_time(Row& row, uint64_t time);
  void run(Row& row, const Record& record);
  void run_end(Row& row, uint64_t time);
  void end_runs(uint64_t time);
  void fold(Row& row, const Record& record);
  void fail(Row& row, uint64_t time);
  void event(char phase, const std::string& track, uint64_t time, std::string_view label = {},
             std::string_view rest = {});
  uint64_t microseconds(uint64_t time) const { return time > origin_ ? (time - origin_) / 1000 : 0; }

  const uint64_t origin_;
  const bool mark_cycles_;
  const std::string library_;
  const Emit emit_;
  std::deque<Label> labels_;                            // [number - 1]
  std::vector<Row*> latest_rows_;                       // [number - 1]; of whichever set came last
  std::unordered_map<std::string, Row*> rows_by_name_;  // by set and name
  std::deque<Row> all_rows_;
  std::vector<Row*> running_;
  std::string text_;  // of an event; kept for its memory
};

}  // namespace hvd
