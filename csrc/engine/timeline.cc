#include "engine/timeline.h"

#include <algorithm>
#include <cctype>

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
  names_.insert(names_.end(), fresh.begin(), fresh.end());
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
    case RecordKind::kCycle:
      if (mark_cycles_)
        emit_(R"({"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "tid": 1, "ts": )" +
              timestamp(record.time) + "}");
      return;
    default:
      return;
  }
}

Timeline::Row* Timeline::row(const Record& record) {
  if (record.name == 0 || record.name > names_.size()) return nullptr;
  Row*& known = rows_[(uint64_t{record.set} << 32) | record.name];
  if (known != nullptr) return known;
  const RecordedName& name = names_[record.name - 1];
  if (name.kind == HVD_JOIN) return nullptr;  // it waits as long as it likes; a bar would hide the others
  Row*& same = rows_by_name_[std::to_string(record.set) + "/" + name.text];
  if (same == nullptr) {
    all_rows_.emplace_back();
    same = &all_rows_.back();
    same->number = static_cast<int>(all_rows_.size());
    emit_(metadata("process_name", same->number, R"("name": )" + json_text(name.text)));
    emit_(metadata("process_sort_index", same->number, R"("sort_index": )" + std::to_string(same->number)));
  }
  known = same;
  return known;
}

void Timeline::ready(Row& row, const Record& record) {
  if (!row.negotiating)
    event('B', row, row.negotiation_track(), record.time,
          "NEGOTIATE_" + label_of(names_[record.name - 1].kind));
  row.negotiating = true;
  event('X', row, row.negotiation_track(), record.time, std::to_string(record.argument), R"(, "dur": 0)");
}

void Timeline::release(Row& row, uint64_t time) {
  if (row.negotiating) event('E', row, row.negotiation_track(), time);
  row.negotiating = false;
  row.released = time;
}

void Timeline::run(Row& row, const Record& record) {
  const RecordedName& name = names_[record.name - 1];
  const std::string activity = activity_of(name.kind, library_);
  if (row.running || activity.empty()) return;  // the one: not if the records are right
  row.running = true;
  row.name = &name;
  running_.push_back(&row);
  const uint64_t time = record.time;
  const uint64_t begin = row.released == 0 ? time : std::max(std::min(row.released, time), row.ended);
  event('B', row, row.run_track(), begin, label_of(name.kind));
  if (begin < time) {
    event('B', row, row.run_track(), begin, "QUEUE");
    event('E', row, row.run_track(), time);
  }
  event('B', row, row.run_track(), time, activity);
}

void Timeline::run_end(Row& row, uint64_t time) {
  const RecordedName& name = *row.name;
  event('E', row, row.run_track(), time);
  std::string arguments;
  if (name.type != RecordedName::kNone)
    arguments = R"(, "args": {"dtype": ")" + std::string(name_of(static_cast<DataType>(name.type))) +
                R"(", "shape": ")" + shape_text(name.shape) + R"("})";
  event('E', row, row.run_track(), time, "", arguments);
  row.running = false;
  row.released = 0;
  row.ended = time;
}

void Timeline::end_runs(uint64_t time) {
  for (Row* each : running_) run_end(*each, time);
  running_.clear();
}

void Timeline::fail(Row& row, uint64_t time) {
  release(row, time);
  if (!row.running) {
    event('B', row, row.run_track(), time, "ERROR");
    event('E', row, row.run_track(), time);
    row.ended = time;
  }
  row.released = 0;
}

void Timeline::end(uint64_t time) {
  end_runs(time);
  for (Row& each : all_rows_)
    if (each.negotiating) release(each, time);
}

void Timeline::event(char phase, const Row& row, int track, uint64_t time, const std::string& label,
                     const std::string& rest) {
  std::string text = std::string(R"({"ph": ")") + phase + R"(", "pid": )" + std::to_string(row.number) +
                     R"(, "tid": )" + std::to_string(track) + R"(, "ts": )" + timestamp(time);
  if (!label.empty()) text += R"(, "name": )" + json_text(label);
  emit_(text + rest + "}");
}

std::string Timeline::timestamp(uint64_t time) const {
  return std::to_string(time > origin_ ? (time - origin_) / 1000 : 0);
}

}  // namespace hvd
