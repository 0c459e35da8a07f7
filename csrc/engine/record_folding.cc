#include "engine/record_folding.h"

#include <algorithm>
#include <iterator>

#include "comm/course.h"
#include "hvd.h"

namespace hvd {
namespace {

constexpr uint64_t kLongest = 1'000'000'000;  // ns of a row: its length must fit 32 bits

uint64_t between(uint64_t begin, uint64_t end) { return end > begin ? end - begin : 0; }

// Those of the same name that `out` ends with.
std::vector<Record> take_votes(uint32_t name, std::vector<Record>* out) {
  std::vector<Record> votes;
  for (; !out->empty() && out->back().kind == RecordKind::kReady && out->back().name == name; out->pop_back())
    votes.push_back(out->back());
  return votes;
}

// A meeting as the records of an operation that was submitted, released and waited for. When the other ranks
// came is there already; all of that is to stand in its order, with this rank's.
void expand_meeting(const Record& meeting, bool votes, bool cycles, std::vector<Record>* out) {
  std::vector<Record> ready = take_votes(meeting.name, out);
  const uint64_t begin = meeting.time, start = meeting.bytes, end = meeting.argument;
  const uint64_t bytes = meeting.extra, handle = uint64_t{1} << 63 | meeting.operation;
  const uint16_t thread = meeting.set;
  const uint32_t number = meeting.operation, name = meeting.name;
  out->push_back({begin, 0, 0, 0, name, RecordKind::kSubmit, HVD_ALLREDUCE, bytes, handle});
  out->push_back({begin, 0, 0, 0, name, RecordKind::kWaitBegin, thread, 0, handle});
  if (votes) {
    ready.push_back({begin, 0, 0, 0, name, RecordKind::kReady, HVD_ALLREDUCE, 0, 0});
    std::sort(ready.begin(), ready.end(), [](const Record& a, const Record& b) {
      return a.time != b.time ? a.time < b.time : a.argument < b.argument;
    });
    out->insert(out->end(), ready.begin(), ready.end());
    if (cycles) out->push_back({start, 0, 0, 0, 0, RecordKind::kCycle, 0, 0, 0});
    out->push_back({start, number, 0, 0, name, RecordKind::kRelease, 0, 0, 1});
  }
  out->push_back({start, number, 0, 0, name, RecordKind::kRunBegin, HVD_ALLREDUCE, bytes, 1});
  out->push_back({start, number, 0, 0, name, RecordKind::kTensor, 0, bytes, handle});
  out->push_back(
      {end, number, 0, 0, name, RecordKind::kRunEnd, static_cast<uint16_t>(Algorithm::kOnce), bytes, 0});
  out->push_back({end, 0, 0, 0, name, RecordKind::kWaitEnd, thread, 0, handle});
}

}  // namespace

void RecordFolding::add(const Record& record, std::vector<Record>* out) {
  if (record.kind == RecordKind::kMeeting) return meet(record, out);
  if (!belongs(record)) {
    flush(out);
    if (!belongs(record)) return out->push_back(record);
  }
  if (now_.waited != 0) complete(out);
}

void RecordFolding::flush(std::vector<Record>* out) {
  end_row(out);
  write(held_, out);
  write(early_, out);
  early_.clear();
  next_operation();
}

// Whether it is the next record of the operation that is under way, or the first of one; then it is held.
bool RecordFolding::belongs(const Record& record) {
  Operation& now = now_;
  const bool same = record.name == now.name && record.set == now.set;
  const bool mine = same && record.argument == now.handle;
  const bool numbered = same && record.operation == now.number && record.generation == now.generation;
  switch (record.kind) {
    case RecordKind::kReady:
      return vote(record);
    case RecordKind::kSubmit:
      if (now.submitted || (!held_.empty() && !same)) return false;
      now.submitted = true;
      now.name = record.name;
      now.set = record.set;
      now.handle = record.argument;
      now.bytes = record.bytes;
      now.kind = record.extra;
      now.submit = record.time;
      break;
    case RecordKind::kWaitBegin:
      if (!now.submitted || !mine || now.wait != 0) return false;
      now.wait = record.time;
      now.thread = record.extra;
      break;
    case RecordKind::kRelease:
      if (!now.submitted || !same || now.released || record.argument != 1 || ready_.size() != lags_.size())
        return false;
      now.released = true;
      now.number = record.operation;
      now.generation = record.generation;
      now.release = record.time;
      break;
    case RecordKind::kRunBegin:
      if (!now.submitted || !same || now.running || record.argument != 1) return false;
      if (votes_ && (!now.released || !numbered)) return false;
      now.running = true;
      now.number = record.operation;
      now.generation = record.generation;
      now.begin = record.time;
      break;
    case RecordKind::kTensor:
      if (!now.running || now.has_tensor || !numbered || !mine) return false;
      now.has_tensor = true;
      break;
    case RecordKind::kRunEnd:
      if (!now.has_tensor || now.ended || !numbered || record.argument != 0) return false;
      now.ended = true;
      now.algorithm = record.extra;
      now.end = record.time;
      break;
    case RecordKind::kWaitEnd:
      if (!now.ended || !mine || now.wait == 0) return false;
      now.waited = record.time;
      break;
    default:
      return false;
  }
  held_.push_back(record);
  return true;
}

bool RecordFolding::vote(const Record& record) {
  if (held_.empty()) {
    now_.name = record.name;
    now_.set = record.set;
  }
  if (!votes_ || record.name != now_.name || record.set != now_.set) return false;
  if (now_.released) {
    early_.push_back(record);
  } else {
    ready_.push_back({record.argument, record.time});
    held_.push_back(record);
  }
  return true;
}

void RecordFolding::meet(const Record& meeting, std::vector<Record>* out) {
  const bool only_votes = held_.size() == ready_.size() && now_.name == meeting.name && now_.set == 0;
  if (!held_.empty() && !only_votes) flush(out);
  if (votes_) ready_.push_back({0, meeting.time});
  held_.push_back(meeting);
  now_.name = meeting.name;
  now_.number = meeting.operation;
  now_.kind = HVD_ALLREDUCE;
  now_.algorithm = static_cast<uint16_t>(Algorithm::kOnce);
  now_.thread = meeting.set;
  now_.bytes = meeting.extra;
  now_.submit = now_.wait = meeting.time;
  now_.release = now_.begin = meeting.bytes;
  now_.end = now_.waited = meeting.argument;
  complete(out);
}

void RecordFolding::complete(std::vector<Record>* out) {
  const bool folds =
      now_.waited - now_.submit <= kQuick && now_.bytes <= kSmall && ready_.size() == lags_.size();
  if (!folds || !continues_row()) end_row(out);
  if (folds) {
    count();
  } else {
    write(held_, out);
  }
  next_operation();
  for (const Record& each : early_) (void)vote(each);
  early_.clear();
}

bool RecordFolding::continues_row() const {
  return count_ != 0 && now_.name == last_.name && now_.set == last_.set &&
         now_.generation == last_.generation && now_.number == last_.number + 1 && now_.kind == last_.kind &&
         now_.algorithm == last_.algorithm && now_.thread == last_.thread && now_.bytes == last_.bytes &&
         now_.submit >= last_.waited && now_.submit - last_.waited <= kQuick &&
         now_.waited - first_.submit <= kLongest;
}

// The operation is the next one of the row.
void RecordFolding::count() {
  if (count_++ == 0) first_ = now_;
  last_ = now_;
  if (count_ <= kFew)
    row_.insert(row_.end(), held_.begin(), held_.end());
  else
    row_.clear();
  auto time = [this](FoldTime which) -> Time& { return times_[static_cast<size_t>(which)]; };
  time(FoldTime::kWhole).add(now_.waited - now_.submit);
  time(FoldTime::kRun).add(between(now_.begin, now_.end));
  time(FoldTime::kFlight).add(between(now_.submit, now_.end));
  time(FoldTime::kBefore).add(between(now_.wait, std::min(now_.begin, now_.waited)));
  time(FoldTime::kTransfer).add(between(std::max(now_.wait, now_.begin), std::min(now_.end, now_.waited)));
  time(FoldTime::kAfter).add(between(std::max(now_.wait, now_.end), now_.waited));
  if (!votes_) return;
  const Vote latest = *std::max_element(ready_.begin(), ready_.end(), [](const Vote& a, const Vote& b) {
    return a.time != b.time ? a.time < b.time : a.rank > b.rank;
  });
  time(FoldTime::kQueue).add(between(latest.time, now_.release));
  Lag& last = lags_[latest.rank];
  last.last++;
  for (const Vote& each : ready_) {
    lags_[each.rank].waited += latest.time - each.time;
    last.caused += latest.time - each.time;
  }
}

void RecordFolding::end_row(std::vector<Record>* out) {
  if (count_ > kFew) {
    auto add = [&](uint64_t time, uint32_t operation, RecordKind kind, uint16_t extra, uint64_t bytes,
                   uint64_t argument) {
      out->push_back(
          {time, operation, first_.set, first_.generation, first_.name, kind, extra, bytes, argument});
    };
    const uint64_t begin = first_.submit, end = last_.waited;
    const auto how = static_cast<uint16_t>(first_.algorithm << 8 | first_.kind);
    add(begin, first_.number, RecordKind::kFold, how, first_.bytes, uint64_t{count_} << 32 | (end - begin));
    for (uint16_t which = 0; which < std::size(times_); ++which)
      add(end, first_.number, RecordKind::kFoldTime, which, times_[which].sum, times_[which].longest);
    for (size_t rank = 0; rank < lags_.size(); ++rank)
      add(end, lags_[rank].last, RecordKind::kFoldRank, static_cast<uint16_t>(rank), lags_[rank].waited,
          lags_[rank].caused);
  } else {
    write(row_, out);
  }
  row_.clear();
  if (count_ != 0) {
    std::fill(std::begin(times_), std::end(times_), Time{});
    std::fill(lags_.begin(), lags_.end(), Lag{});
  }
  count_ = 0;
}

void RecordFolding::next_operation() {
  now_ = {};
  ready_.clear();
  held_.clear();
}

void RecordFolding::write(const std::vector<Record>& records, std::vector<Record>* out) const {
  for (const Record& each : records)
    if (each.kind == RecordKind::kMeeting)
      expand_meeting(each, votes_, cycles_, out);
    else
      out->push_back(each);
}

}  // namespace hvd
