#include "engine/timeline.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <iterator>

#include "base/json.h"
#include "base/types.h"
#include "engine/agreement.h"
#include "kinds.h"

namespace hvd {
namespace {

std::string upper(const char* text) {
  std::string result = text;
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return result;
}

std::string label_of(uint8_t kind) {
  if (kind == RecordedName::kAdasum) return "ADASUM";
  return is_kind(kind) ? upper(kind_name(kind)) : "";
}

// What the data's way through the transport is called; empty for what moves none.
std::string activity_of(uint8_t kind, const std::string& library) {
  switch (kind) {
    case HVD_BROADCAST:
      return library + "_BCAST";
    case RecordedName::kAdasum:
      return library + "_ALLREDUCE";
    case HVD_ALLREDUCE:
    case HVD_ALLGATHER:
    case HVD_ALLTOALL:
    case HVD_REDUCESCATTER:
      return library + "_" + label_of(kind);
    default:
      return "";
  }
}

std::string metadata(const char* what, int row, const std::string& arguments) {
  return std::string(R"({"name": ")") + what + R"(", "ph": "M", "pid": )" + std::to_string(row) +
         R"(, "args": {)" + arguments + "}}";
}

}  // namespace

Timeline::Timeline(uint64_t origin, int64_t epoch, bool mark_cycles, std::string library, Emit emit)
    : origin_(origin), mark_cycles_(mark_cycles), library_(std::move(library)), emit_(std::move(emit)) {
  // Tells tools where on the wall clock the times of the trace begin.
  emit_(metadata("process_name", 0, R"("start_time_since_epoch_in_micros": )" + std::to_string(epoch)));
  emit_(metadata("process_sort_index", 0, R"("sort_index": 0)"));
}

void Timeline::names(const std::vector<RecordedName>& fresh) {
  auto named = [](const std::string& label) { return R"(, "name": )" + json_text(label); };
  for (const RecordedName& name : fresh) {
    Label label;
    label.name = name;
    label.negotiation = named("NEGOTIATE_" + label_of(name.kind));
    label.run = named(label_of(name.kind));
    const std::string activity = activity_of(name.kind, library_);
    if (!activity.empty()) label.activity = named(activity);
    if (name.type != RecordedName::kNone)
      label.arguments = R"(, "args": {"dtype": ")" + std::string(name_of(static_cast<DataType>(name.type))) +
                        R"(", "shape": ")" + shape_text(name.shape) + R"("})";
    labels_.push_back(std::move(label));
  }
  latest_rows_.resize(labels_.size());
}

void Timeline::record(const Record& record) {
  switch (record.kind) {
    case RecordKind::kReady:
      if (Row* found = row(record)) ready(*found, record);
      return;
    case RecordKind::kRelease:
      if (Row* found = row(record)) release(*found, record.time);
      return;
    case RecordKind::kFailed:
      if (Row* found = row(record)) fail(*found, record.time);
      return;
    case RecordKind::kRunBegin:
      return end_runs(record.time);  // if there was no room for the record of its end
    case RecordKind::kTensor:
      if (Row* found = row(record)) run(*found, record);
      return;
    case RecordKind::kRunEnd:
      return end_runs(record.time);
    case RecordKind::kFold:
      if (Row* found = row(record)) fold(*found, record);
      return;
    case RecordKind::kCycle:
      if (mark_cycles_)
        emit_(R"({"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "tid": 1, "ts": )" +
              std::to_string(microseconds(record.time)) + "}");
      return;
    default:
      return;
  }
}

Timeline::Row* Timeline::row(const Record& record) {
  if (record.name == 0 || record.name > labels_.size()) return nullptr;
  Row*& latest = latest_rows_[record.name - 1];
  if (latest != nullptr && latest->set == record.set) return latest;
  const RecordedName& name = labels_[record.name - 1].name;
  if (name.kind == HVD_JOIN) return nullptr;  // it waits as long as it likes; a bar would hide the others
  Row*& same = rows_by_name_[std::to_string(record.set) + "/" + name.text];
  if (same == nullptr) {
    all_rows_.emplace_back();
    same = &all_rows_.back();
    same->set = record.set;
    same->number = static_cast<int>(all_rows_.size());
    auto track = [same](int number) {
      return R"(", "pid": )" + std::to_string(same->number) + R"(, "tid": )" + std::to_string(number) +
             R"(, "ts": )";
    };
    same->negotiation_track = track(2 * same->number);
    same->run_track = track(2 * same->number + 1);
    emit_(metadata("process_name", same->number, R"("name": )" + json_text(name.text)));
    emit_(metadata("process_sort_index", same->number, R"("sort_index": )" + std::to_string(same->number)));
  }
  latest = same;
  return same;
}

// Rank 0 may hear that a rank is ready for the next operation before it has recorded a meeting: a viewer
// could not draw what goes back in time.
uint64_t Timeline::negotiation_time(Row& row, uint64_t time) {
  return row.negotiated = std::max(row.negotiated, time);
}

void Timeline::ready(Row& row, const Record& record) {
  const uint64_t time = negotiation_time(row, record.time);
  if (!row.negotiating) event('B', row.negotiation_track, time, labels_[record.name - 1].negotiation);
  row.negotiating = true;
  char rank[48] = R"(, "name": ")";
  char* const number = rank + std::strlen(rank);
  char* const end = std::to_chars(number, std::end(rank) - 1, record.argument).ptr;
  *end = '"';
  event('X', row.negotiation_track, time, {rank, static_cast<size_t>(end + 1 - rank)}, R"(, "dur": 0)");
}

void Timeline::release(Row& row, uint64_t time) {
  if (row.negotiating) event('E', row.negotiation_track, negotiation_time(row, time));
  row.negotiating = false;
  row.released = time;
}

void Timeline::run(Row& row, const Record& record) {
  const Label& label = labels_[record.name - 1];
  if (row.running || label.activity.empty()) return;  // the one: not if the records are right
  row.running = true;
  row.label = &label;
  running_.push_back(&row);
  const uint64_t time = record.time;
  const uint64_t begin = row.released == 0 ? time : std::max(std::min(row.released, time), row.ended);
  event('B', row.run_track, begin, label.run);
  if (microseconds(begin) < microseconds(time)) {
    event('B', row.run_track, begin, R"(, "name": "QUEUE")");
    event('E', row.run_track, time);
  }
  event('B', row.run_track, time, label.activity);
}

void Timeline::run_end(Row& row, uint64_t time) {
  event('E', row.run_track, time);
  event('E', row.run_track, time, {}, row.label->arguments);
  row.running = false;
  row.released = 0;
  row.ended = time;
}

void Timeline::end_runs(uint64_t time) {
  for (Row* each : running_) run_end(*each, time);
  running_.clear();
}

// Many operations in a row: one bar, which says how many.
void Timeline::fold(Row& row, const Record& record) {
  const Label& label = labels_[record.name - 1];
  if (label.activity.empty()) return;
  const uint64_t end = record.time + (record.argument & UINT32_MAX);
  const std::string count = R"("count": )" + std::to_string(record.argument >> 32) + "}";
  event('B', row.run_track, std::max(record.time, row.ended), label.run);
  event('E', row.run_track, end, {},
        label.arguments.empty() ? R"(, "args": {)" + count
                                : label.arguments.substr(0, label.arguments.size() - 1) + ", " + count);
  row.ended = end;
}

void Timeline::fail(Row& row, uint64_t time) {
  release(row, time);
  if (!row.running) {
    event('B', row.run_track, time, R"(, "name": "ERROR")");
    event('E', row.run_track, time);
    row.ended = time;
  }
  row.released = 0;
}

void Timeline::end(uint64_t time) {
  end_runs(time);
  for (Row& each : all_rows_)
    if (each.negotiating) release(each, time);
}

void Timeline::event(char phase, const std::string& track, uint64_t time, std::string_view label,
                     std::string_view rest) {
  char digits[24];
  char* const end = std::to_chars(digits, std::end(digits), microseconds(time)).ptr;
  text_.assign(R"({"ph": ")");
  text_ += phase;
  text_ += track;
  text_.append(digits, static_cast<size_t>(end - digits));
  text_ += label;
  text_ += rest;
  text_ += '}';
  emit_(text_);
}

}  // namespace hvd
