// What is said about ranks that others wait for, and about a rank's last operations: pure, without ranks.
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "engine/recent_operations.h"
#include "engine/stalls.h"

using hvd::Negotiation;
using hvd::RankState;
using hvd::Stalls;
using Kind = Stalls::Report::Kind;

namespace {

constexpr double kLimit = 10.0;

Stalls make_stalls(int ranks) {
  std::vector<hvd::PeerName> peers;
  for (int rank = 0; rank < ranks; ++rank) peers.push_back({"h" + std::to_string(rank), 100 + rank});
  return Stalls(kLimit, peers);
}

Negotiation::Stalled vote(uint64_t number, const std::string& name, double seconds, std::vector<int> ready,
                          std::vector<int> missing) {
  return {number, name, seconds, std::move(ready), std::move(missing)};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

RankState runs(const std::string& name, double seconds) { return {true, name, seconds, 0.0}; }
RankState idle(const std::string& name, double seconds) { return {true, name, 0.0, seconds}; }

}  // namespace

TEST(ranges_are_short) {
  CHECK(hvd::rank_ranges({}).empty());
  CHECK(hvd::rank_ranges({0, 1, 2, 4, 6, 7}) == "0-2, 4, 6, 7");
}

TEST(a_stall_names_tensor_rank_host_and_process) {
  Stalls stalls = make_stalls(4);
  std::vector<RankState> states(4);
  states[3] = idle("loss", 12);
  CHECK(stalls.update({vote(1, "grad", 9, {0, 1, 2}, {3})}, states).empty());
  auto reports = stalls.update({vote(1, "grad", 11, {0, 1, 2}, {3}), vote(2, "other", 3, {0}, {3})}, states);
  CHECK(reports.size() == 1 && reports[0].kind == Kind::kStall);
  CHECK(has(reports[0].text, "grad (and 1 more) has waited 11 s for rank 3 (host h3, pid 103); ready: 0-2."));
  CHECK(has(reports[0].text, "Missing on rank(s) 3: grad, other"));
  CHECK(has(reports[0].text, "Rank 3: its last operation, loss, ended 12 s ago."));
  CHECK(reports[0].ask == std::vector<int>{3});
  CHECK(stalls.stalled() == 1);
}

TEST(it_is_repeated_after_twice_as_long_and_told_when_it_is_over) {
  Stalls stalls = make_stalls(2);
  const std::vector<RankState> states(2);
  std::vector<int> told;
  for (int seconds = 1; seconds <= 90; ++seconds)
    if (!stalls.update({vote(5, "x", seconds, {0}, {1})}, states).empty()) told.push_back(seconds);
  CHECK(told == (std::vector<int>{10, 20, 40, 80}));
  auto reports = stalls.update({}, states);
  CHECK(reports.size() == 1 && reports[0].kind == Kind::kResolved && has(reports[0].text, "x goes on"));
  CHECK(stalls.update({}, states).empty() && stalls.stalled() == 0);
}

// One of the two that it waited for has come; the other one is missing in an older operation, too.
TEST(what_joins_another_stall_does_not_go_on) {
  Stalls stalls = make_stalls(3);
  const std::vector<RankState> states(3);
  CHECK(stalls.update({vote(1, "a", 12, {0, 2}, {1}), vote(2, "b", 11, {0}, {1, 2})}, states).size() == 2);
  CHECK(stalls.update({vote(1, "a", 13, {0, 2}, {1}), vote(2, "b", 12, {0, 2}, {1})}, states).empty());
  const auto reports = stalls.update({}, states);
  CHECK(reports.size() == 1 && reports[0].kind == Kind::kResolved);
  CHECK(has(reports[0].text, "a (and 1 more) goes on"));
}

TEST(what_is_short_is_never_told) {
  Stalls stalls = make_stalls(2);
  CHECK(stalls.update({vote(1, "x", 9, {0}, {1})}, std::vector<RankState>(2)).empty());
  CHECK(stalls.update({}, std::vector<RankState>(2)).empty());
}

TEST(ranks_that_wait_for_each_other_run_different_code) {
  Stalls stalls = make_stalls(3);
  auto reports = stalls.update({vote(1, "a", 11, {0, 1}, {2}), vote(2, "b", 10.5, {2}, {0, 1})},
                               std::vector<RankState>(3));
  CHECK(reports.size() == 2);
  std::string all = reports[0].text + reports[1].text;
  CHECK(has(all, "Rank 2 waits in b, which rank(s) 0, 1 have not submitted: the ranks run different code."));
  CHECK(has(all, "Rank 0 waits in a, which rank(s) 2 have not submitted"));
}

TEST(an_operation_that_was_released_and_does_not_end_is_told) {
  Stalls stalls = make_stalls(3);
  std::vector<RankState> states = {runs("grad", 11), idle("grad", 11), runs("grad", 10)};
  auto reports = stalls.update({}, states);
  CHECK(reports.size() == 1 && reports[0].kind == Kind::kHang);
  CHECK(has(reports[0].text,
            "grad was started and has not ended for 11 s on rank 0 (host h0, pid 100), rank 2"));
  CHECK(has(reports[0].text, "Not in it: rank(s) 1."));
  CHECK(reports[0].ask == (std::vector<int>{0, 1, 2}));
  CHECK(stalls.update({}, states).empty());
  states[0] = states[2] = idle("grad", 0);
  reports = stalls.update({}, states);
  CHECK(reports.size() == 1 && reports[0].kind == Kind::kResolved);
}

TEST(the_reason_to_stop_names_tensor_and_ranks) {
  CHECK(Stalls::reason_to_stop(vote(1, "x", 31, {0}, {1, 2}), 30) ==
        "'x' has waited for rank(s) 1, 2 for more than 30 seconds (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS).");
}

// Whoever asks has taken the time before: meanwhile another thread may begin or end an operation.
TEST(an_operation_later_than_the_question_is_no_age_old) {
  auto agreement = std::make_shared<hvd::wire::Agreement>();
  agreement->common.name = "grad";
  hvd::RecentOperations recent;
  recent.begin(agreement, 1, 4, 1000);
  CHECK(recent.latest(999).running == 1);
  CHECK(recent.text(1, 999) == "grad (4 bytes, running for 0.0 s)");
  recent.end(2000);
  CHECK(recent.latest(1999).idle == 0);
  CHECK(recent.text(1, 1999) == "grad (4 bytes, 0.0 s ago)");
}

TEST(the_last_operations_are_kept_in_a_file_across_engines) {
  constexpr size_t kEntry = sizeof(hvd::KeptOperation);
  const int fd = memfd_create("kept", MFD_CLOEXEC);
  CHECK(ftruncate(fd, 64) == 0);
  CHECK(!hvd::RecentOperations().keep_in(fd).ok() && !hvd::RecentOperations().keep_in(-1).ok());
  CHECK(ftruncate(fd, 65 * kEntry) == 0);
  auto agreement = std::make_shared<hvd::wire::Agreement>();
  agreement->common.name = std::string(200, 'n');
  const auto run = [&](uint64_t from, uint64_t to, bool ends) {
    hvd::RecentOperations recent;
    CHECK(recent.keep_in(fd).ok());
    for (uint64_t i = from; i < to; ++i) {
      recent.begin(agreement, 2, i, 1000 + i);
      if (ends) recent.end(2000 + i);
    }
  };
  run(0, 64, true);
  run(64, 66, true);
  run(66, 67, false);
  uint64_t count = 0;
  CHECK(pread(fd, &count, sizeof count, 0) == sizeof count && count == 67);
  for (uint64_t i = 3; i < 67; ++i) {
    hvd::KeptOperation kept{};
    CHECK(pread(fd, &kept, kEntry, static_cast<off_t>(kEntry * (1 + i % 64))) == kEntry);
    CHECK(kept.begin == 1000 + i && kept.end == (i == 66 ? 0 : 2000 + i) && kept.bytes == i);
    CHECK(kept.tensors == 2 && kept.length == sizeof kept.name && kept.name[95] == 'n');
  }
  close(fd);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
