// The coordinator's decisions, without threads or sockets.
#include <set>

#include "check.h"
#include "engine/negotiation.h"

namespace {

using namespace hvd;
using wire::Descriptor;

const Negotiation::Time kStart{};

Negotiation::Options options(int size, int64_t fusion = 1 << 20, int cache = 8) {
  return {size, fusion, cache, false};
}

Descriptor allreduce(const std::string& name, int64_t count = 4, DataType type = DataType::kFloat32,
                     int set = 0) {
  Descriptor descriptor;
  descriptor.kind = HVD_ALLREDUCE;
  descriptor.name = name;
  descriptor.process_set = set;
  descriptor.tensors = {{type, {count}}};
  return descriptor;
}

Descriptor simple(int kind, const std::string& name, std::vector<int32_t> numbers = {}) {
  Descriptor descriptor;
  descriptor.kind = kind;
  descriptor.name = name;
  descriptor.numbers = std::move(numbers);
  return descriptor;
}

void from_all(Negotiation& negotiation, int size, const Descriptor& descriptor) {
  for (int rank = 0; rank < size; ++rank) negotiation.request(rank, descriptor, kStart);
}

}  // namespace

TEST(nothing_runs_before_everyone_has_it) {
  Negotiation negotiation(options(3));
  negotiation.request(2, allreduce("x"), kStart);
  negotiation.request(0, allreduce("x"), kStart);
  CHECK(!negotiation.has_ready());
  negotiation.request(1, allreduce("x"), kStart);
  auto releases = negotiation.release(false);
  CHECK(releases.size() == 1 && releases[0].ranks->size() == 3 && releases[0].operation.items.size() == 1);
}

TEST(fuses_up_to_the_threshold_and_only_what_fits_together) {
  Negotiation negotiation(options(2, 100));
  for (int i = 0; i < 10; ++i)
    from_all(negotiation, 2, allreduce("f" + std::to_string(i), 10));  // 40 bytes each
  from_all(negotiation, 2, allreduce("d", 5, DataType::kFloat64));
  auto releases = negotiation.release(false);
  std::multiset<size_t> sizes;
  for (const auto& release : releases) sizes.insert(release.operation.items.size());
  CHECK((sizes == std::multiset<size_t>{1, 2, 2, 2, 2, 2}));
}

TEST(no_fusion_when_switched_off) {
  Negotiation negotiation(options(1, 0));
  for (int i = 0; i < 3; ++i) from_all(negotiation, 1, allreduce("f" + std::to_string(i)));
  CHECK(negotiation.release(false).size() == 3);
}

TEST(holds_only_what_rank_0_takes_part_in) {
  Negotiation negotiation(options(3));
  from_all(negotiation, 3, simple(HVD_ADD_PROCESS_SET, "add", {1, 2}));
  CHECK(negotiation.release(false).size() == 1);
  from_all(negotiation, 3, allreduce("all"));
  negotiation.request(1, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  negotiation.request(2, allreduce("some", 4, DataType::kFloat32, 1), kStart);
  auto releases = negotiation.release(true);
  CHECK(releases.size() == 1 && releases[0].operation.process_set == 1 &&
        *releases[0].ranks == (std::vector<int>{1, 2}));
  CHECK(negotiation.release(false).size() == 1);
}

TEST(second_time_goes_by_id) {
  Negotiation negotiation(options(2));
  from_all(negotiation, 2, allreduce("x"));
  uint32_t id = negotiation.release(false)[0].operation.items[0].fresh->id;
  CHECK(id != 0);
  negotiation.cached(0, id, kStart);
  negotiation.cached(1, id, kStart);
  CHECK(negotiation.release(false)[0].operation.items[0].cached_id == id);
}

TEST(a_changed_request_is_checked_against_the_remembered_one) {
  Negotiation negotiation(options(2));
  from_all(negotiation, 2, allreduce("x", 4));
  uint32_t id = negotiation.release(false)[0].operation.items[0].fresh->id;
  negotiation.cached(0, id, kStart);
  negotiation.request(1, allreduce("x", 5), kStart);
  auto releases = negotiation.release(false);
  CHECK(releases[0].operation.code == HVD_FAILED_PRECONDITION);
  CHECK(releases[0].operation.text.find("[4]") != std::string::npos &&
        releases[0].operation.text.find("[5]") != std::string::npos);
  // Both with the new shape: agreed again under a new id, the old one is evicted.
  from_all(negotiation, 2, allreduce("x", 5));
  CHECK(negotiation.release(false)[0].operation.items[0].fresh->id != id);
  CHECK(negotiation.take_evicted() == std::vector<uint32_t>{id});
  CHECK(negotiation.remembered(id) == nullptr);
}

TEST(one_evicted_while_ready_travels_whole) {
  Negotiation negotiation(options(1, 0, 1));
  from_all(negotiation, 1, allreduce("a"));
  uint32_t a = negotiation.release(false)[0].operation.items[0].fresh->id;
  negotiation.cached(0, a, kStart);          // ready, not yet released
  from_all(negotiation, 1, allreduce("b"));  // pushes "a" out
  auto releases = negotiation.release(false);
  CHECK(releases[0].operation.items[0].fresh && releases[0].operation.items[0].fresh->id == 0);
  CHECK(releases[1].operation.items[0].fresh->id != 0);
}

TEST(names_from_a_counter_are_not_remembered) {
  Negotiation negotiation(options(1));
  from_all(negotiation, 1, allreduce("allreduce.noname.7"));
  CHECK(negotiation.release(false)[0].operation.items[0].fresh->id == 0);
}

TEST(join_completes_what_was_waiting) {
  Negotiation negotiation(options(3));
  negotiation.request(0, allreduce("x"), kStart);
  negotiation.request(1, simple(HVD_JOIN, "join.noname"), kStart);
  CHECK(!negotiation.has_ready());
  negotiation.request(2, simple(HVD_JOIN, "join.noname"), kStart);
  CHECK(negotiation.release(false).size() == 1);
  Descriptor gather = allreduce("g");
  gather.kind = HVD_ALLGATHER;
  negotiation.request(0, gather, kStart);
  CHECK(negotiation.release(false)[0].operation.code == HVD_FAILED_PRECONDITION);
  negotiation.request(0, simple(HVD_JOIN, "join.noname"), kStart);
  auto releases = negotiation.release(false);
  CHECK(releases[0].operation.items[0].fresh->result == 0);
  negotiation.request(0, allreduce("x"), kStart);
  CHECK(!negotiation.has_ready());  // nobody is joined any more
}

TEST(process_set_ids_are_reused_and_removal_fails_what_is_pending) {
  Negotiation negotiation(options(2));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0}));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {1}));
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0, 1}));  // the world itself
  auto releases = negotiation.release(false);
  CHECK(releases[0].operation.items[0].fresh->result == 1 &&
        releases[1].operation.items[0].fresh->result == 2);
  CHECK(releases[2].operation.code == HVD_INVALID_ARGUMENT);
  Descriptor remove = simple(HVD_REMOVE_PROCESS_SET, "remove");
  remove.root_rank = 1;
  from_all(negotiation, 2, remove);
  negotiation.request(0, allreduce("late", 4, DataType::kFloat32, 1), kStart);
  releases = negotiation.release(false);
  CHECK(releases.back().operation.code == HVD_INVALID_ARGUMENT && releases.back().operation.name == "late");
  from_all(negotiation, 2, simple(HVD_ADD_PROCESS_SET, "add", {0}));
  CHECK(negotiation.release(false)[0].operation.items[0].fresh->result == 1);
}

TEST(stalled_operations_name_who_is_missing_once) {
  Negotiation negotiation(options(3));
  negotiation.request(1, allreduce("slow"), kStart);
  auto later = kStart + std::chrono::seconds(61);
  CHECK(negotiation.newly_stalled(kStart + std::chrono::seconds(59), 60).empty());
  auto stalled = negotiation.newly_stalled(later, 60);
  CHECK(stalled.size() == 1 && stalled[0].name == "slow" && stalled[0].missing == (std::vector<int>{0, 2}));
  CHECK(negotiation.newly_stalled(later, 60).empty() && negotiation.stalled(later, 60).size() == 1);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
