// The coordinator's decisions, without threads or sockets.
#include <set>

#include "check.h"
#include "engine/negotiation.h"
#include "test_knobs.h"

namespace {

using namespace hvd;
using wire::Request;

const Negotiation::Time kStart{};
const std::vector<uint8_t> kIdle(8, 0);

std::vector<uint8_t> busy(int rank) {
  std::vector<uint8_t> ranks = kIdle;
  ranks[static_cast<size_t>(rank)] = 1;
  return ranks;
}

Negotiation make_negotiation(int size, int64_t fusion = 1 << 20, int cache = 8) {
  hvd_knobs knobs = test_knobs();
  knobs.fusion_threshold = fusion;
  knobs.cache_capacity = cache;
  return Negotiation(size, knobs);
}

Request allreduce(const std::string& name, int64_t count = 4, DataType type = DataType::kFloat32,
                  int set = 0) {
  Request request;
  request.kind = HVD_ALLREDUCE;
  request.name = name;
  request.process_set = set;
  request.tensors = {{type, {count}}};
  return request;
}

Request simple(int kind, const std::string& name, std::vector<int32_t> numbers = {}) {
  Request request;
  request.kind = kind;
  request.name = name;
  request.numbers = std::move(numbers);
  return request;
}

Request remove_set(int set) {
  Request request = simple(HVD_REMOVE_PROCESS_SET, "remove");
  request.root_rank = set;
  return request;
}

Request gather(const std::string& name, std::vector<int64_t> shape) {
  Request request = allreduce(name);
  request.kind = HVD_ALLGATHER;
  request.tensors[0].shape = std::move(shape);
  return request;
}

// The name of what a release runs or fails; only the first of fused ones.
std::string name_of(const Negotiation::Release& release) {
  if (release.operation.code != HVD_OK) return release.operation.name;
  return release.operation.items[0].fresh->common.name;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void from_all(Negotiation& negotiation, int size, const Request& request) {
  for (int rank = 0; rank < size; ++rank) negotiation.request(rank, request, kStart);
}

}  // namespace

TEST(nothing_runs_before_everyone_has_it) {
  Negotiation negotiation = make_negotiation(3);
  negotiation.request(2, allreduce("x"), kStart);
  negotiation.request(0, allreduce("x"), kStart);
  CHECK(!negotiation.has_ready());
  negotiation.request(1, allreduce("x"), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && releases[0].ranks->size() == 3 && releases[0].operation.items.size() == 1);
}

TEST(fuses_up_to_the_threshold_and_only_what_fits_together) {
  Negotiation negotiation = make_negotiation(2, 100);
  for (int i = 0; i < 10; ++i)
    from_all(negotiation, 2, allreduce("f" + std::to_string(i), 10));  // 40 bytes each
  from_all(negotiation, 2, allreduce("d", 5, DataType::kFloat64));
  auto releases = negotiation.release(kIdle);
  std::multiset<size_t> sizes;
  for (const auto& release : releases) sizes.insert(release.operation.items.size());
  CHECK((sizes == std::multiset<size_t>{1, 2, 2, 2, 2, 2}));
}

TEST(no_fusion_when_switched_off) {
  Negotiation negotiation = make_negotiation(1, 0);
  for (int i = 0; i < 3; ++i) from_all(negotiation, 1, allreduce("f" + std::to_string(i)));
  CHECK(negotiation.release(kIdle).size() == 3);
}

TEST(holds_only_sets_whose_first_member_is_busy) {
  Negotiation negotiation = make_negotiation(3);
  from_all(negotiation, 3, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}));
  CHECK(negotiation.release(kIdle).size() == 1);
  from_all(negotiation, 3, allreduce("all"));
  negotiation.request(1, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  negotiation.request(2, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  CHECK(negotiation.release(busy(2)).size() == 2);
  from_all(negotiation, 3, allreduce("all"));
  negotiation.request(1, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  negotiation.request(2, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  auto releases = negotiation.release(busy(0));
  CHECK(releases.size() == 1 && releases[0].operation.process_set == 1 &&
        *releases[0].ranks == (std::vector<int>{1, 2}));
  CHECK(negotiation.release(kIdle).size() == 1);
  for (const char* name : {"a", "b", "c"})
    for (int rank : {1, 2}) negotiation.request(rank, allreduce(name, 4, DataType::kFloat32, 1), kStart);
  CHECK(negotiation.release(busy(1)).empty());
  releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && releases[0].operation.items.size() == 3);
}

TEST(a_set_is_not_removed_before_its_last_operation) {
  Negotiation negotiation = make_negotiation(3);
  from_all(negotiation, 3, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}));
  CHECK(negotiation.release(kIdle).size() == 1);
  for (int rank : {1, 2}) negotiation.request(rank, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  from_all(negotiation, 3, remove_set(1));
  from_all(negotiation, 3, simple(HVD_ADD_PROCESS_SET, "add", {0, 1}));
  from_all(negotiation, 3, allreduce("all"));
  auto releases = negotiation.release(busy(1));  // though neither adding nor removing is held by itself
  CHECK(releases.size() == 1 && name_of(releases[0]) == "all");
  releases = negotiation.release(kIdle);
  CHECK(releases.size() == 3 && name_of(releases[0]) == "some" && name_of(releases[1]) == "remove" &&
        name_of(releases[2]) == "add");
  CHECK(*releases[0].ranks == (std::vector<int>{1, 2}));
}

TEST(what_is_ready_outlives_its_process_set) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {1}));
  CHECK(negotiation.release(kIdle).size() == 1);
  negotiation.request(1, allreduce("x", 4, DataType::kFloat32, 1), kStart);
  from_all(negotiation, 2, remove_set(1));
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 2 && name_of(releases[0]) == "x" && *releases[0].ranks == std::vector<int>{1});
}

TEST(nobody_comes_back_from_join_while_standing_in) {
  Negotiation negotiation = make_negotiation(3);
  from_all(negotiation, 3, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}));
  CHECK(negotiation.release(kIdle).size() == 1);
  negotiation.request(2, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  from_all(negotiation, 3, simple(HVD_JOIN, "join.noname"));
  CHECK(negotiation.release(busy(1)).empty());
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 2 && name_of(releases[0]) == "some" && name_of(releases[1]) == "join.noname");
}

TEST(second_time_goes_by_id) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, allreduce("x"));
  uint32_t id = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  CHECK(id != 0);
  negotiation.cached(0, id, kStart);
  negotiation.cached(1, id, kStart);
  CHECK(negotiation.release(kIdle)[0].operation.items[0].cached_id == id);
}

TEST(a_changed_request_is_checked_against_the_remembered_one) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, allreduce("x", 4));
  uint32_t id = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  negotiation.cached(0, id, kStart);
  negotiation.request(1, allreduce("x", 5), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases[0].operation.code == HVD_FAILED_PRECONDITION);
  CHECK(releases[0].operation.text.find("[4]") != std::string::npos &&
        releases[0].operation.text.find("[5]") != std::string::npos);
  // Both with the new shape: agreed again under a new id, the old one is evicted.
  from_all(negotiation, 2, allreduce("x", 5));
  CHECK(negotiation.release(kIdle)[0].operation.items[0].fresh->id != id);
  CHECK(negotiation.take_evicted() == std::vector<uint32_t>{id});
  CHECK(negotiation.remembered(id) == nullptr);
}

TEST(one_evicted_while_ready_travels_whole) {
  Negotiation negotiation = make_negotiation(1, 0, 1);
  from_all(negotiation, 1, allreduce("a"));
  uint32_t a = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  negotiation.cached(0, a, kStart);          // ready, not yet released
  from_all(negotiation, 1, allreduce("b"));  // pushes "a" out
  auto releases = negotiation.release(kIdle);
  CHECK(releases[0].operation.items[0].fresh && releases[0].operation.items[0].fresh->id == 0);
  CHECK(releases[1].operation.items[0].fresh->id != 0);
}

TEST(names_from_a_counter_are_not_remembered) {
  Negotiation negotiation = make_negotiation(1);
  from_all(negotiation, 1, allreduce("allreduce.noname.7"));
  CHECK(negotiation.release(kIdle)[0].operation.items[0].fresh->id == 0);
}

TEST(join_completes_what_was_waiting) {
  Negotiation negotiation = make_negotiation(3);
  negotiation.request(0, allreduce("x"), kStart);
  negotiation.request(1, simple(HVD_JOIN, "join.noname"), kStart);
  CHECK(!negotiation.has_ready());
  negotiation.request(2, simple(HVD_JOIN, "join.noname"), kStart);
  CHECK(negotiation.release(kIdle).size() == 1);
  negotiation.request(0, gather("g", {4}), kStart);
  auto failed = negotiation.release(kIdle);
  CHECK(failed[0].operation.code == HVD_FAILED_PRECONDITION && *failed[0].ranks == std::vector<int>{0});
  negotiation.request(0, simple(HVD_JOIN, "join.noname"), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases[0].operation.items[0].fresh->result == 0);
  negotiation.request(0, allreduce("x"), kStart);
  CHECK(!negotiation.has_ready());  // nobody is joined any more
}

TEST(the_last_join_finishes_what_is_pending_first_in_order_of_arrival) {
  Negotiation negotiation = make_negotiation(2, 0);
  std::vector<std::string> expected, names;
  for (int i = 0; i < 20; ++i) {
    expected.push_back("x" + std::to_string(i));
    negotiation.request(1, allreduce(expected.back()), kStart);
  }
  for (int rank : {1, 0}) negotiation.request(rank, simple(HVD_JOIN, "join.noname"), kStart);
  expected.emplace_back("join.noname");
  for (const auto& release : negotiation.release(kIdle)) names.push_back(name_of(release));
  CHECK(names == expected && !negotiation.has_votes());
}

TEST(joining_keeps_a_partly_voted_addition_pending) {
  Negotiation negotiation = make_negotiation(2);
  negotiation.request(0, simple(HVD_ADD_PROCESS_SET, "add", {1}), kStart);
  from_all(negotiation, 2, simple(HVD_JOIN, "join.noname"));
  CHECK(negotiation.release(kIdle).size() == 1 && negotiation.has_votes());
  negotiation.request(1, simple(HVD_ADD_PROCESS_SET, "add", {1}), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && releases[0].operation.items[0].fresh->result == 1);
}

TEST(who_failed_to_join_has_not_joined) {
  Negotiation negotiation = make_negotiation(3);
  negotiation.request(0, simple(HVD_JOIN, "same"), kStart);
  for (int rank : {1, 2}) negotiation.request(rank, allreduce("same"), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && releases[0].operation.code == HVD_FAILED_PRECONDITION &&
        releases[0].ranks->size() == 3);
  for (int rank : {1, 2}) negotiation.request(rank, allreduce("next"), kStart);
  CHECK(!negotiation.has_ready());
}

TEST(failures_go_to_exactly_those_who_voted) {
  Negotiation negotiation = make_negotiation(4);
  from_all(negotiation, 4, simple(HVD_ADD_PROCESS_SET, "add", {0, 1, 2}));
  CHECK(negotiation.release(kIdle).size() == 1);
  negotiation.request(2, allreduce("x", 4, DataType::kFloat32, 1), kStart);
  from_all(negotiation, 4, remove_set(1));
  auto releases = negotiation.release(kIdle);
  CHECK(name_of(releases[0]) == "x" && releases[0].operation.code == HVD_INVALID_ARGUMENT &&
        *releases[0].ranks == std::vector<int>{2});
  negotiation.request(1, allreduce("x", 4, DataType::kFloat32, 1), kStart);  // late
  releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && *releases[0].ranks == std::vector<int>{1});
  // Joined ranks have not voted either.
  negotiation.request(3, simple(HVD_JOIN, "join.noname"), kStart);
  for (int rank : {0, 1, 2}) negotiation.request(rank, allreduce("y", rank), kStart);
  releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && *releases[0].ranks == (std::vector<int>{0, 1, 2}));
}

TEST(a_vote_counts_once) {
  Negotiation negotiation = make_negotiation(2);
  for (int i = 0; i < 2; ++i) negotiation.request(0, allreduce("x"), kStart);
  CHECK(!negotiation.has_ready());
  negotiation.request(1, allreduce("x"), kStart);
  CHECK(negotiation.release(kIdle).size() == 1 && !negotiation.has_votes());
}

TEST(what_follows_a_forgotten_id_waits_for_the_answer) {
  Negotiation negotiation = make_negotiation(2, 0, 1);
  from_all(negotiation, 2, allreduce("a"));
  uint32_t a = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  from_all(negotiation, 2, allreduce("b"));  // pushes "a" out
  uint32_t b = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  negotiation.cached(0, a, kStart);
  negotiation.cached(0, b, kStart);
  negotiation.request(0, simple(HVD_JOIN, "join.noname"), kStart);
  auto questions = negotiation.take_questions();
  CHECK(questions.size() == 1 && questions[0].rank == 0 && questions[0].id == a);
  negotiation.request(1, allreduce("a"), kStart);
  CHECK(!negotiation.has_ready());  // rank 0 has not joined: it has "a", and that is still to come
  from_all(negotiation, 1, allreduce("b"));
  negotiation.resent(0, a, allreduce("a"), kStart);  // remembered again, so "b" is forgotten while it waits
  questions = negotiation.take_questions();
  CHECK(questions.size() == 1 && questions[0].rank == 0 && questions[0].id == b);
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 1 && name_of(releases[0]) == "a");
  negotiation.resent(0, b, allreduce("b"), kStart);
  negotiation.request(1, simple(HVD_JOIN, "join.noname"), kStart);
  releases = negotiation.release(kIdle);
  CHECK(releases.size() == 2 && name_of(releases[0]) == "b" && name_of(releases[1]) == "join.noname");
  CHECK(!negotiation.has_votes());
}

TEST(all_remove_the_same_set) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0}));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {1}));
  negotiation.request(0, remove_set(1), kStart);
  negotiation.request(1, remove_set(2), kStart);
  auto releases = negotiation.release(kIdle);
  CHECK(releases[2].operation.code == HVD_INVALID_ARGUMENT);
  CHECK(contains(releases[2].operation.text, "Rank 0 removes process set 1, rank 1 removes 2"));
}

TEST(scalars_are_named_for_what_they_are) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, gather("g", {}));
  CHECK(contains(negotiation.release(kIdle)[0].operation.text, "at least one dimension"));
  Request alltoall = gather("a", {});
  alltoall.kind = HVD_ALLTOALL;
  from_all(negotiation, 2, alltoall);
  CHECK(contains(negotiation.release(kIdle)[0].operation.text, "at least one dimension"));
  negotiation.request(0, gather("m", {}), kStart);
  negotiation.request(1, gather("m", {3}), kStart);
  CHECK(contains(negotiation.release(kIdle)[0].operation.text, "rank 0 has [], rank 1 has [3]"));
}

TEST(what_is_impossible_only_together_is_refused) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, gather("rows", {int64_t{1} << 62, 0}));
  from_all(negotiation, 2, gather("bytes", {int64_t{1} << 60}));
  auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 2);
  for (const auto& release : releases)
    CHECK(release.operation.code == HVD_ABORTED && contains(release.operation.text, "2^63"));
  // Sums of possible sizes don't overflow in fusion, either.
  for (const char* name : {"x", "y"}) from_all(negotiation, 2, allreduce(name, int64_t{1} << 60));
  CHECK(negotiation.release(kIdle).size() == 2);
}

TEST(process_set_ids_are_reused_and_removal_fails_what_is_pending) {
  Negotiation negotiation = make_negotiation(2);
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0}));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {1}));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0, 1}));  // the world itself
  auto releases = negotiation.release(kIdle);
  CHECK(releases[0].operation.items[0].fresh->result == 1 &&
        releases[1].operation.items[0].fresh->result == 2);
  CHECK(releases[2].operation.code == HVD_INVALID_ARGUMENT);
  from_all(negotiation, 2, remove_set(1));
  negotiation.request(0, allreduce("late", 4, DataType::kFloat32, 1), kStart);
  releases = negotiation.release(kIdle);
  CHECK(releases.back().operation.code == HVD_INVALID_ARGUMENT && releases.back().operation.name == "late");
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0}));
  CHECK(negotiation.release(kIdle)[0].operation.items[0].fresh->result == 1);
}

TEST(stalled_operations_name_who_is_missing) {
  Negotiation negotiation = make_negotiation(3);
  CHECK(negotiation.waits_since(kStart) == kStart);
  negotiation.request(1, allreduce("slow"), kStart);
  auto later = kStart + std::chrono::seconds(61);
  CHECK(negotiation.waits_since(later) == kStart);
  CHECK(negotiation.stalled(kStart + std::chrono::seconds(59), 60).empty());
  auto stalled = negotiation.stalled(later, 60);
  CHECK(stalled.size() == 1 && stalled[0].name == "slow" && stalled[0].missing == (std::vector<int>{0, 2}));
}

TEST(who_comes_last_is_counted) {
  Negotiation negotiation = make_negotiation(2);
  for (int i = 0; i < 3; ++i) {
    negotiation.request(0, allreduce("x"), kStart);
    negotiation.request(1, allreduce("x"), kStart + std::chrono::seconds(2));
    negotiation.release(kIdle);
  }
  CHECK(negotiation.late()[0].times == 0 && negotiation.late()[1].times == 3);
  CHECK(negotiation.late()[1].cost == std::chrono::seconds(2));  // all three at once
  negotiation.request(0, allreduce("x"), kStart + std::chrono::seconds(10));
  negotiation.request(1, allreduce("x"), kStart + std::chrono::seconds(11));
  CHECK(negotiation.late()[1].cost == std::chrono::seconds(3));
}

TEST(joined_ranks_are_missing_only_where_they_must_vote) {
  Negotiation negotiation = make_negotiation(3);
  negotiation.request(0, allreduce("slow"), kStart);
  negotiation.request(0, simple(HVD_ADD_PROCESS_SET, "add", {1}), kStart);
  negotiation.request(1, simple(HVD_JOIN, "join.noname"), kStart);
  auto stalled = negotiation.stalled(kStart + std::chrono::seconds(61), 60);
  CHECK(stalled.size() == 2 && stalled[0].name == "slow" && stalled[0].missing == std::vector<int>{2});
  CHECK(stalled[1].name == "add" && stalled[1].missing == (std::vector<int>{1, 2}));
}

// Votes that came together are counted as those ranks' own, one after the other.
TEST(votes_of_many_ranks_count_as_theirs) {
  constexpr auto kSecond = std::chrono::seconds(1);
  Negotiation together = make_negotiation(5), one_by_one = make_negotiation(5);
  for (Negotiation* each : {&together, &one_by_one}) {
    from_all(*each, 5, allreduce("x"));
    const uint32_t id = each->release(kIdle)[0].operation.items[0].fresh->id;
    hvd::wire::Vote vote;
    vote.id = id;
    vote.last = 1;
    vote.waited_ns = 2'000'000'000;
    hvd::RankSet ranks(5);
    for (int rank : {1, 2, 4}) ranks.add(rank);
    const auto now = kStart + 10 * kSecond;
    each->cached(3, id, kStart + 9 * kSecond);
    if (each == &together) {
      each->votes(ranks, vote, now);
      each->votes(ranks, vote, now + kSecond);  // again: nobody is counted twice
    } else {
      for (int rank : {2, 4}) each->cached(rank, id, now - 2 * kSecond);
      each->cached(1, id, now);
    }
    const auto waits = each->stalled(now + kSecond, 0);
    CHECK(waits.size() == 1 && waits[0].missing == std::vector<int>{0} && waits[0].seconds == 3);
    CHECK(waits[0].ready == (std::vector<int>{1, 2, 3, 4}));
    CHECK(!each->has_ready());
    hvd::wire::Vote own = vote;
    own.last = 0;
    own.waited_ns = 0;
    hvd::RankSet zero(5);
    zero.add(0);
    if (each == &together) {
      each->votes(zero, own, now + 4 * kSecond);
    } else {
      each->cached(0, id, now + 4 * kSecond);
    }
    CHECK(each->has_ready());
    CHECK(each->late()[0].times == 1 && each->late()[0].cost == 6 * kSecond);
  }
}

TEST(votes_of_many_ranks_are_looked_at_one_by_one_where_they_differ) {
  Negotiation negotiation = make_negotiation(4);
  negotiation.request(0, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}), kStart);
  for (int rank : {1, 2, 3}) negotiation.request(rank, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}), kStart);
  negotiation.release(kIdle);
  for (int rank : {1, 2}) negotiation.request(rank, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  hvd::wire::Vote vote;
  vote.id = negotiation.release(kIdle)[0].operation.items[0].fresh->id;
  vote.last = 3;
  hvd::RankSet ranks(4);
  for (int rank : {1, 2, 3}) ranks.add(rank);
  negotiation.votes(ranks, vote, kStart);
  const auto releases = negotiation.release(kIdle);
  CHECK(releases.size() == 2);
  for (const auto& release : releases)
    CHECK(release.operation.code == HVD_OK ? *release.ranks == (std::vector<int>{1, 2})
                                           : *release.ranks == std::vector<int>{3});
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
