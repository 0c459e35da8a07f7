#include <sched.h>

#include <algorithm>

#include "base/processors.h"
#include "check.h"

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

TEST(moving_keeps_what_is_allowed) {
  cpu_set_t before, after;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  bool moved = false;
  for (int i = 0; i < 20 && !moved; ++i) {  // the scheduler may undo one
    const int here = this_processor();
    keep_apart({here, here}, 1);
    moved = this_processor() != here;
  }
  CHECK(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(moved || CPU_COUNT(&before) == 1);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
