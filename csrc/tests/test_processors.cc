#include <sched.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/processors.h"
#include "check.h"
#include "comm/shm_group.h"

using namespace hvd;

TEST(members_within_their_share_stay) {
  for (int self = 0; self < 4; ++self) CHECK(fair_place({0, 1, 1, 0}, self, 2, {0, 1}) == -1);
}

TEST(who_comes_last_goes_where_there_is_room) {
  CHECK(fair_place({0, 0, 0, 1}, 0, 2, {0, 1}) == -1);
  CHECK(fair_place({0, 0, 0, 1}, 1, 2, {0, 1}) == -1);
  CHECK(fair_place({0, 0, 0, 1}, 2, 2, {0, 1}) == 1);
  CHECK(fair_place({0, 0, 0, 1}, 3, 2, {0, 1}) == -1);
}

TEST(several_find_different_places) {
  const std::vector<int> runs_on = {3, 3, 3, 3, 3, 3};
  std::vector<int> then = runs_on;
  for (int self = 0; self < 6; ++self) {
    int place = fair_place(runs_on, self, 2, {1, 3, 7});
    if (place >= 0) then[self] = place;
  }
  for (int processor : {1, 3, 7}) CHECK(std::count(then.begin(), then.end(), processor) == 2);
}

TEST(the_first_place_with_room_is_taken) {
  CHECK(fair_place({5, 5, 6}, 1, 1, {6, 7, 0, 5}) == 7);
  CHECK(fair_place({5, 5, 6, 5}, 3, 1, {6, 7, 0, 5}) == 0);
}

TEST(nobody_leaves_the_allowed_processors) {
  CHECK(fair_place({0, 0, 0}, 2, 1, {0}) == -1);
  CHECK(fair_place({0, 0, 0}, 2, 1, {}) == -1);
}

namespace {

// Whether `move` takes this thread to another processor. The scheduler may undo it, so there are some tries.
template <typename Move>
bool moves(Move move) {
  for (int i = 0; i < 20; ++i) {
    const int here = this_processor();
    move();
    if (this_processor() != here) return true;
  }
  return false;
}

cpu_set_t allowed_processors() {
  cpu_set_t allowed;
  CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  return allowed;
}

}  // namespace

TEST(moving_keeps_what_is_allowed) {
  const cpu_set_t before = allowed_processors();
  const bool moved = moves([] { keep_apart({this_processor(), this_processor()}, 1); });
  const cpu_set_t after = allowed_processors();
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(moved || CPU_COUNT(&before) == 1);
}

TEST(who_meets_another_on_its_processor_moves) {
  std::vector<std::byte> memory(ShmSegment::bytes(2) + 4096);
  void* start = memory.data();
  size_t space = memory.size();
  ShmSegment segment(std::align(4096, ShmSegment::bytes(2), start, space), 2, kSubSlotBytes);
  const AbortSignal abort;
  StagingUse<ShmGroup> staging[2];
  auto member = [&](int rank) {
    auto group = std::make_shared<ShmGroup>(segment, 0, std::vector<int>{0, 1}, rank, abort);
    return ShmProtocol<ShmGroup>(group, staging[rank]);
  };
  auto first = member(0), second = member(1);
  const bool moved = moves([&] {
    for (auto* protocol : {&first, &second}) {
      CHECK(protocol->begin_showing(false));
      protocol->show();
    }
    CHECK(second.await_all_shown());
  });
  const cpu_set_t allowed = allowed_processors();
  CHECK(moved || CPU_COUNT(&allowed) == 1);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
