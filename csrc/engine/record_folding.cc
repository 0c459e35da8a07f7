#include "engine/record_folding.h"

#include <algorithm>
#include <iterator>

#include "comm/course.h"
#include "hvd.h"

namespace hvd {
namespace {

constexpr uint64_t kLongest = 1'000'000'000;  // ns of a row: its length must fit 32 bits

uint64_t between(uint64_t begin, uint64_t end) { return end > begin ? end - begin : 0; }

// When it began to run, and when it ended.
uint64_t start_of(const Record& meeting) { return meeting.time + (meeting.argument & UINT32_MAX); }
uint64_t end_of(const Record& meeting) { return meeting.time + (meeting.argument >> 32); }

// Those of the same name that `out` ends with.
std::vector<Record> take_votes(uint32_t name, std::vector<Record>* out) {
  std::vector<Record> votes;
  for (; !out->empty() && out->back().kind == RecordKind::kReady && out->back().name == name; out->pop_back())
    votes.push_back(out->back());
  return votes;
}

// A meeting as the records of an operation that was submitted, released and waited for. When ranks after the
// second came is there already; all of that is to stand in its order.
void expand_meeting(const Record& meeting, bool votes, bool cycles, std::vector<Record>* out) {
  std::vector<Record> ready = take_votes(meeting.name, out);
  const uint64_t begin = meeting.time, start = start_of(meeting), end = end_of(meeting);
  const uint64_t bytes = meeting.extra, handle = uint64_t{1} << 63 | meeting.operation;
  const uint16_t thread = meeting.set;
  const uint32_t number = meeting.operation, name = meeting.name;
  out->push_back({begin, 0, 0, 0, name, RecordKind::kSubmit, HVD_ALLREDUCE, bytes, handle});
  out->push_back({begin, 0, 0, 0, name, RecordKind::kWaitBegin, thread, 0, handle});
  if (votes) {
    ready.push_back({begin, 0, 0, 0, name, RecordKind::kReady, HVD_ALLREDUCE, 0, 0});
    ready.push_back({meeting.bytes, 0, 0, 0, name, RecordKind::kReady, HVD_ALLREDUCE, 0, 1});
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

void expand_run(const Record& run, std::vector<Record>* out) {
  Record begin = run, tensor = run;
  begin.kind = RecordKind::kRunBegin;
  begin.argument = 1;
  tensor.kind = RecordKind::kTensor;
  tensor.extra = 0;
  out->push_back(begin);
  out->push_back(tensor);
}

void expand_submission(const Record& submission, std::vector<Record>* out) {
  Record submit = submission;
  submit.kind = RecordKind::kSubmit;
  submit.operation = 0;
  out->push_back(submit);
  out->push_back({submission.time, 0, submission.set, 0, submission.name, RecordKind::kWaitBegin,
                  static_cast<uint16_t>(submission.operation), 0, submission.argument});
}

}  // namespace

void RecordFolding::add(const Record& record, std::vector<Record>* out) {
  if (record.kind == RecordKind::kMeeting) return meet(record, out);
  if (!belongs(record)) {
    flush(out);
    if (!belongs(record)) return write(record, out);
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
    case RecordKind::kSubmitAndWait:
      if (now.submitted || (!held_.empty() && !same)) return false;
      now.submitted = true;
      now.name = record.name;
      now.set = record.set;
      now.handle = record.argument;
      now.bytes = record.bytes;
      now.kind = record.extra;
      now.submit = record.time;
      if (record.kind == RecordKind::kSubmit) break;
      now.wait = record.time;
      now.thread = static_cast<uint16_t>(record.operation);
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
    case RecordKind::kRunAlone:
      if (!now.submitted || !mine || now.running) return false;
      if (votes_ && (!now.released || !numbered)) return false;
      now.running = true;
      now.number = record.operation;
      now.generation = record.generation;
      now.begin = record.time;
      break;
    case RecordKind::kRunEnd:
      if (!now.running || now.ended || !numbered || record.argument != 0) return false;
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

// The most frequent case by far, and what it takes is taken from the ranks: a meeting that the row goes on
// with.
bool RecordFolding::meet_again(const Record& meeting) {
  const uint64_t start = start_of(meeting), end = end_of(meeting), whole = end - meeting.time;
  const Operation& last = last_;
  const bool continues =
      count_ >= kFew && held_.empty() && lags_.size() <= 2 && meeting.operation == last.number + 1 &&
      meeting.name == last.name && last.set == 0 && last.generation == 0 && last.kind == HVD_ALLREDUCE &&
      last.algorithm == static_cast<uint16_t>(Algorithm::kOnce) && last.thread == meeting.set &&
      last.bytes == meeting.extra && meeting.time >= last.waited && meeting.time - last.waited <= kQuick &&
      whole <= kQuick && end - first_.submit <= kLongest;
  if (!continues) return false;
  if (count_++ == kFew) row_.clear();
  last_.number = meeting.operation;
  last_.waited = end;
  time(FoldTime::kWhole).add(whole);
  time(FoldTime::kRun).add(end - start);
  time(FoldTime::kFlight).add(whole);
  time(FoldTime::kBefore).add(start - meeting.time);
  time(FoldTime::kTransfer).add(end - start);
  if (!votes_) return true;
  const bool me = meeting.time >= meeting.bytes;  // was the last one
  const uint64_t lag = me ? meeting.time - meeting.bytes : meeting.bytes - meeting.time;
  time(FoldTime::kQueue).add(between(std::max(meeting.time, meeting.bytes), start));
  lags_[me ? 1 : 0].waited += lag;
  lags_[me ? 0 : 1].caused += lag;
  lags_[me ? 0 : 1].last++;
  return true;
}

void RecordFolding::meet(const Record& meeting, std::vector<Record>* out) {
  if (meet_again(meeting)) return;
  const bool only_votes = held_.size() == ready_.size() && now_.name == meeting.name && now_.set == 0;
  if (!held_.empty() && !only_votes) flush(out);
  if (votes_) {
    ready_.push_back({0, meeting.time});
    ready_.push_back({1, meeting.bytes});
  }
  now_.name = meeting.name;
  now_.number = meeting.operation;
  now_.kind = HVD_ALLREDUCE;
  now_.algorithm = static_cast<uint16_t>(Algorithm::kOnce);
  now_.thread = meeting.set;
  now_.bytes = meeting.extra;
  now_.submit = now_.wait = meeting.time;
  now_.release = now_.begin = start_of(meeting);
  now_.end = now_.waited = end_of(meeting);
  held_.push_back(meeting);
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
  for (const Record& each : records) write(each, out);
}

void RecordFolding::write(const Record& record, std::vector<Record>* out) const {
  if (record.kind == RecordKind::kMeeting) return expand_meeting(record, votes_, cycles_, out);
  if (record.kind == RecordKind::kRunAlone) return expand_run(record, out);
  if (record.kind == RecordKind::kSubmitAndWait) return expand_submission(record, out);
  out->push_back(record);
}

}  // namespace hvd
