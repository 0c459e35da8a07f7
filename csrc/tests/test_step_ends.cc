// What counts as a step of the training, of all that says that one has ended.
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/step_ends.h"
#include "thread_world.h"

namespace {

using hvd::StepEnds;

// How many of these ends count.
int counted(StepEnds& ends, const std::vector<int64_t>& kinds) {
  int count = 0;
  for (const int64_t kind : kinds) count += ends.by_adapter(kind) ? 1 : 0;
  return count;
}

uint64_t steps(Rank& rank) {
  const std::string names = hvd_metric_names();
  std::vector<uint64_t> values(1000);
  hvd_metrics(rank.engine, values.data(), static_cast<int32_t>(values.size()));
  size_t place = 0;
  for (size_t begin = 0; names.compare(begin, 6, "steps\n") != 0; begin = names.find('\n', begin) + 1)
    ++place;
  return values[place];
}

}  // namespace

TEST(each_end_of_a_single_kind_counts) {
  StepEnds ends;
  CHECK(counted(ends, {7, 7, 7, 7}) == 4);
}

TEST(kinds_that_take_turns_are_one_step) {
  StepEnds ends;
  CHECK(counted(ends, {1, 2, 1, 2, 1, 2}) == 3);
  CHECK(counted(ends, {1, 3, 2, 1, 2, 3}) == 2);  // in any order
}

TEST(the_more_frequent_kind_counts) {
  StepEnds ends;
  CHECK(counted(ends, {1, 2, 2, 2, 1, 2, 2, 2}) == 1 + 2 + 3);  // the first 2 was part of the step of 1
  CHECK(counted(ends, {1, 2, 2, 2}) == 3);
}

TEST(another_training_takes_over) {
  StepEnds ends;
  CHECK(counted(ends, {1, 1, 1}) == 3);
  CHECK(counted(ends, {2, 3, 2, 3, 2, 3}) == 2);  // all but the first
  CHECK(counted(ends, {1, 2, 1, 2}) == 2);
}

TEST(kinds_that_never_come_again_do_not_pile_up) {
  StepEnds ends;
  int count = 0;
  for (int64_t kind = 1; kind <= 10'000; ++kind) count += ends.by_adapter(kind) ? 1 : 0;
  CHECK(count == 1 + 2);
}

TEST(the_program_itself_is_believed) {
  StepEnds ends;
  CHECK(ends.by_adapter(1));
  CHECK(!ends.by_program());  // the same step
  for (int i = 0; i < 3; ++i) {
    CHECK(!ends.by_adapter(1));
    CHECK(!ends.by_adapter(2));
    CHECK(ends.by_program());
    CHECK(ends.by_program());  // whatever it means
  }
  StepEnds other;
  CHECK(other.by_program() && !other.by_adapter(1) && other.by_program());
}

TEST(they_are_counted_from_any_thread_and_on_the_default_engine) {
  hvd_end_step_default(1);  // nothing, as there is none
  ThreadWorld(2).run([](Rank& rank) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int step = 0; step < 100; ++step) hvd_end_step(rank.engine, 5);
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(steps(rank) == 400);
    CHECK(rank.simple(HVD_BARRIER, "counted") == HVD_OK);
    if (rank.rank == 1) {
      hvd_set_default(rank.engine);
      hvd_end_step_default(5);
      hvd_set_default(nullptr);
      CHECK(steps(rank) == 401);
    }
    hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    hvd_end_step(rank.engine, 5);
    CHECK(steps(rank) == (rank.rank == 1 ? 401 : 400));
    hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    CHECK(steps(rank) == (rank.rank == 1 ? 402 : 401));
  });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
