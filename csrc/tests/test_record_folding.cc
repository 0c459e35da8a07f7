// Folds tell the same sums as the records that they stand for.
#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <tuple>

#include "check.h"
#include "comm/course.h"
#include "engine/record_folding.h"

using hvd::FoldTime;
using hvd::Record;
using hvd::RecordFolding;
using hvd::RecordKind;

namespace {

constexpr int kMostRanks = 3;

// What can be said about all records of a rank: the simple way to count it.
struct Sums {
  std::map<uint32_t, uint64_t> runs, run_ns;  // by name
  uint64_t wait = 0, whole = 0, flight = 0, queue = 0;
  uint64_t lag[kMostRanks] = {}, caused[kMostRanks] = {}, last[kMostRanks] = {};
  auto mine() const { return std::tuple(runs, run_ns, wait, whole, flight); }
  auto of_votes() const {
    return std::tuple(queue, std::vector<uint64_t>(lag, lag + kMostRanks),
                      std::vector<uint64_t>(caused, caused + kMostRanks),
                      std::vector<uint64_t>(last, last + kMostRanks));
  }
};

Sums sums(const std::vector<Record>& records, size_t ranks) {
  Sums found;
  std::map<uint64_t, uint64_t> submits, waits, handles;    // by handle; the handle by operation
  std::map<uint32_t, uint64_t> runs;                       // by operation
  std::map<uint32_t, std::map<uint64_t, uint64_t>> votes;  // by name and rank
  for (const Record& each : records) {
    switch (each.kind) {
      case RecordKind::kSubmit:
        submits[each.argument] = each.time;
        break;
      case RecordKind::kReady:
        votes[each.name].try_emplace(each.argument, each.time);
        break;
      case RecordKind::kRelease: {
        const auto ready = votes[each.name];
        votes.erase(each.name);
        if (ready.size() != ranks) break;
        const auto latest = std::max_element(ready.begin(), ready.end(),
                                             [](auto& a, auto& b) { return a.second < b.second; });
        found.queue += each.time - latest->second;
        found.last[latest->first]++;
        for (const auto& [rank, time] : ready) {
          found.lag[rank] += latest->second - time;
          found.caused[latest->first] += latest->second - time;
        }
        break;
      }
      case RecordKind::kRunBegin:
        runs[each.operation] = each.time;
        break;
      case RecordKind::kTensor:
        handles[each.operation] = each.argument;
        break;
      case RecordKind::kRunEnd:
        if (runs.count(each.operation) == 0) break;
        found.runs[each.name]++;
        found.run_ns[each.name] += each.time - runs[each.operation];
        if (submits.count(handles[each.operation]) != 0)
          found.flight += each.time - submits[handles[each.operation]];
        break;
      case RecordKind::kWaitBegin:
        waits[each.argument] = each.time;
        break;
      case RecordKind::kWaitEnd:
        if (waits.count(each.argument) == 0) break;
        found.wait += each.time - waits[each.argument];
        if (submits.count(each.argument) != 0) found.whole += each.time - submits[each.argument];
        break;
      case RecordKind::kFold:
        found.runs[each.name] += each.argument >> 32;
        break;
      case RecordKind::kFoldTime:
        switch (static_cast<FoldTime>(each.extra)) {
          case FoldTime::kWhole:
            found.whole += each.bytes;
            break;
          case FoldTime::kRun:
            found.run_ns[each.name] += each.bytes;
            break;
          case FoldTime::kFlight:
            found.flight += each.bytes;
            break;
          case FoldTime::kQueue:
            found.queue += each.bytes;
            break;
          default:
            found.wait += each.bytes;
        }
        break;
      case RecordKind::kFoldRank:
        found.lag[each.extra] += each.bytes;
        found.caused[each.extra] += each.argument;
        found.last[each.extra] += each.operation;
        break;
      default:
        break;
    }
  }
  return found;
}

// Operations as an engine records them, at random; with `loss` some of the records are missing.
class Story {
 public:
  Story(unsigned seed, uint64_t ranks, bool votes, double loss)
      : random_(seed), ranks_(ranks), votes_(votes), loss_(loss) {}

  std::vector<Record> records;  // as the engine makes them
  std::vector<Record> plain;    // the same with meetings as operations like any other
  std::vector<uint32_t> slow;   // numbers of operations that must be seen

  void tell(int operations) {
    while (operations > 0) {
      const int row = pick({1, 1, 3, 16, 17, 18, 60, 400});
      const uint32_t name = static_cast<uint32_t>(pick({1, 1, 2, 3}));
      const bool meet = pick({0, 1}) == 1;
      const uint64_t bytes = static_cast<uint64_t>(pick({4, 4, 32 << 10, meet ? 4 : 1 << 20}));
      bool meets = meet;
      for (int i = 0; i < row; ++i, --operations) {
        const bool next_meets = meet && some(50) != 0;
        // A rank that has finished may announce the next one before this rank has finished.
        operation(name, meets, bytes, i + 1 < row && !meets && !next_meets && some(2) == 0);
        time_ += static_cast<uint64_t>(pick({100, 1000, 5000}));
        meets = next_meets;
      }
      time_ += static_cast<uint64_t>(pick({0, 50'000, 150'000}));
      if (pick({0, 1}) == 1) add({time_, 0, 0, 0, 9, RecordKind::kStep, 0, 1, 1});
    }
  }

 private:
  int pick(std::initializer_list<int> from) { return from.begin()[random_() % from.size()]; }
  uint64_t some(int most) { return random_() % static_cast<uint64_t>(most); }
  bool lost() { return loss_ > 0 && std::uniform_real_distribution<>()(random_) < loss_; }
  void add(const Record& record) {
    if (lost()) return;
    records.push_back(record);
    plain.push_back(record);
  }

  void operation(uint32_t name, bool meets, uint64_t bytes, bool announces_next) {
    ++number_;
    const uint64_t submit = time_, wait = submit + (meets ? 0 : some(pick({1, 300})));
    const uint64_t ready = wait + some(pick({500, 500, 20'000, 500}));
    const uint64_t release = ready + (meets ? 0 : some(500)), begin = release + (meets ? 0 : some(500));
    const uint64_t end = begin + 100 + some(some(60) == 0 ? 300'000 : 1000);
    const uint64_t waited = end + (meets ? 0 : some(500)), handle = uint64_t{1} << 63 | number_;
    time_ = waited;
    if (waited - submit > RecordFolding::kQuick || bytes > RecordFolding::kSmall) slow.push_back(number_);
    std::vector<Record> votes;
    for (uint64_t rank = announced_ ? 2 : 1; votes_ && rank < ranks_; ++rank)
      votes.push_back({rank == 2 ? ready : submit + some(static_cast<int>(ready - submit) + 1), 0, 0, 0, name,
                       RecordKind::kReady, 0, 0, rank});
    if (meets) {
      const size_t known = plain.size();
      for (size_t i = 1; i < votes.size(); ++i) add(votes[i]);  // that of rank 1 is in the meeting
      votes.resize(votes_ ? 1 : 0);
      votes.insert(votes.end(), plain.begin() + static_cast<ptrdiff_t>(known), plain.end());
      plain.resize(known);
      records.push_back({submit, number_, 7, 0, name, RecordKind::kMeeting, static_cast<uint16_t>(bytes),
                         votes_ ? votes[0].time : 0, (end - submit) << 32 | (begin - submit)});
    }
    auto tell = [&](const Record& record) { meets ? plain.push_back(record) : add(record); };
    const Record submits{submit, 0, 0, 0, name, RecordKind::kSubmit, 0, bytes, handle};
    const bool late = !meets && pick({0, 1}) == 1;  // a thread that comes after another has begun
    const Record begins{wait, 0, 0, 0, name, RecordKind::kWaitBegin, 7, 0, handle};
    const bool at_once = !meets && !late && wait == submit && pick({0, 1}) == 1;
    if (at_once && !lost()) {
      plain.insert(plain.end(), {submits, begins});
      records.push_back({submit, 7, 0, 0, name, RecordKind::kSubmitAndWait, 0, bytes, handle});
    }
    if (!at_once) tell(submits);
    if (!at_once && !late) tell(begins);
    const Record own{submit, 0, 0, 0, name, RecordKind::kReady, 0, 0, 0};
    if (votes_ && meets) {  // in the order in which they came
      votes.push_back(own);
      std::sort(votes.begin(), votes.end(), [](const Record& a, const Record& b) {
        return std::pair(a.time, a.argument) < std::pair(b.time, b.argument);
      });
      plain.insert(plain.end(), votes.begin(), votes.end());
    } else if (votes_) {
      tell(own);
      for (const Record& each : votes) add(each);
    }
    if (votes_) tell({release, number_, 0, 0, name, RecordKind::kRelease, 0, 0, 1});
    const bool told = meets || !lost();
    if (told) plain.push_back({begin, number_, 0, 0, name, RecordKind::kRunBegin, 0, bytes, 1});
    if (told) plain.push_back({begin, number_, 0, 0, name, RecordKind::kTensor, 0, bytes, handle});
    if (told && !meets)
      records.push_back({begin, number_, 0, 0, name, RecordKind::kRunAlone, 0, bytes, handle});
    if (late) tell(begins);
    tell({end, number_, 0, 0, name, RecordKind::kRunEnd, static_cast<uint16_t>(hvd::Algorithm::kOnce), bytes,
          0});
    announced_ = announces_next;
    if (announced_ && votes_) add({end, 0, 0, 0, name, RecordKind::kReady, 0, 0, 1});
    tell({waited, 0, 0, 0, name, RecordKind::kWaitEnd, 7, 0, handle});
  }

  std::mt19937 random_;
  const uint64_t ranks_;
  const bool votes_;
  const double loss_;
  uint64_t time_ = 1'000'000'000;
  uint32_t number_ = 0;
  bool announced_ = false;  // rank 1 is ready for the next operation
};

bool same(const Record& a, const Record& b) {
  auto all = [](const Record& each) {
    return std::tuple(each.time, each.operation, each.set, each.generation, each.name, each.kind, each.extra,
                      each.bytes, each.argument);
  };
  return all(a) == all(b);
}

bool is_fold(const Record& record) {
  return record.kind == RecordKind::kFold || record.kind == RecordKind::kFoldTime ||
         record.kind == RecordKind::kFoldRank;
}

}  // namespace

TEST(folds_are_exact_and_nothing_else_changes) {
  size_t before = 0, after = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const bool votes = seed % 2 == 0, loses = seed % 4 >= 2;
    const int ranks = seed % 8 < 4 ? 2 : 3;
    Story story(seed, static_cast<uint64_t>(ranks), votes, loses ? 0.01 : 0);
    story.tell(1500);
    RecordFolding folding(ranks, votes);
    std::vector<Record> written;
    for (size_t i = 0; i < story.records.size(); ++i) {
      folding.add(story.records[i], &written);
      if (i % 5000 == 4999) folding.flush(&written);
    }
    folding.flush(&written);
    const auto all = static_cast<size_t>(ranks);
    const Sums found = sums(written, all), expected = sums(story.plain, all);
    CHECK(found.mine() == expected.mine());
    // Votes whose release is lost go to whichever operation comes next.
    CHECK(loses || found.of_votes() == expected.of_votes());
    // What is not a fold is there as it was, in the order of its kind.
    std::map<RecordKind, size_t> next;
    for (const Record& each : written) {
      if (is_fold(each)) continue;
      size_t& at = next[each.kind];
      while (at < story.plain.size() && !same(each, story.plain[at])) ++at;
      CHECK(at++ < story.plain.size());
    }
    // What was slow or large can be seen.
    std::map<uint32_t, int> seen;
    for (const Record& each : written)
      if (!is_fold(each)) seen[each.operation]++;
    for (uint32_t number : story.slow) CHECK(loses || seen[number] >= 3);
    before += story.plain.size();
    after += written.size();
  }
  CHECK(after < before / 2);  // and it does fold
}

TEST(a_long_row_becomes_a_few_records) {
  RecordFolding folding(2, true);
  std::vector<Record> written;
  for (uint32_t number = 1; number <= 1000; ++number) {
    const uint64_t at = number * 2000;
    folding.add({at, number, 1, 0, 5, RecordKind::kMeeting, 4, at + 300, uint64_t{500} << 32 | 400},
                &written);
  }
  CHECK(written.empty());
  folding.flush(&written);
  CHECK(written.size() == 1 + static_cast<size_t>(FoldTime::kCount) + 2);
  CHECK(written[0].kind == RecordKind::kFold && written[0].operation == 1 && written[0].bytes == 4);
  CHECK(written[0].time == 2000 && written[0].argument >> 32 == 1000);
  CHECK((written[0].argument & UINT32_MAX) == 999 * 2000 + 500);
  const Record& run = written[1 + static_cast<size_t>(FoldTime::kRun)];
  CHECK(run.bytes == 100 * 1000 && run.argument == 100 && run.time == 1000 * 2000 + 500);
  const Record &zero = written[written.size() - 2], &one = written.back();
  CHECK(zero.extra == 0 && zero.bytes == 300 * 1000 && zero.argument == 0 && zero.operation == 0);
  CHECK(one.extra == 1 && one.bytes == 0 && one.argument == 300 * 1000 && one.operation == 1000);
}

TEST(few_stay_as_they_are) {
  RecordFolding folding(2, false);
  std::vector<Record> written;
  for (uint32_t number = 1; number <= RecordFolding::kFew; ++number)
    folding.add({number * 2000, number, 1, 0, 5, RecordKind::kMeeting, 4, 0, uint64_t{9} << 32 | 1},
                &written);
  folding.flush(&written);
  CHECK(written.size() == 6 * RecordFolding::kFew);
  folding.flush(&written);
  CHECK(written.size() == 6 * RecordFolding::kFew);
}

// Whoever agrees without the coordinator does not wait for one of its cycles, but the original's files have
// one for every operation.
TEST(a_meeting_is_a_cycle_if_they_are_marked) {
  for (bool cycles : {false, true}) {
    RecordFolding folding(2, true, cycles);
    std::vector<Record> written;
    folding.add({100, 1, 1, 0, 5, RecordKind::kMeeting, 4, 200, uint64_t{300} << 32 | 200}, &written);
    folding.flush(&written);
    const auto found = std::find_if(written.begin(), written.end(),
                                    [](const Record& each) { return each.kind == RecordKind::kCycle; });
    CHECK((found != written.end()) == cycles);
    CHECK(!cycles || (found->time == 300 && std::next(found)->kind == RecordKind::kRelease));
  }
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
