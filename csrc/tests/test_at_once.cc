// Operations that need no coordinator, among those that do.
#include <atomic>
#include <chrono>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "check.h"
#include "thread_world.h"

namespace {

uint64_t met(hvd_engine* engine) {
  std::istringstream names(hvd_metric_names());
  size_t index = 0;
  for (std::string name; names >> name; ++index) {
    if (name != "operations_without_coordinator") continue;
    std::vector<uint64_t> values(4096);
    CHECK(hvd_metrics(engine, values.data(), static_cast<int32_t>(values.size())) > static_cast<int>(index));
    return values[index];
  }
  CHECK(false);
  return 0;
}

float sum_over(int size, int step) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += static_cast<float>(step * 7 + r);
  return sum;
}

void check_sum(const Rank& rank, const std::vector<float>& data, int step, int present) {
  for (float value : data) CHECK(value == sum_over(present, step));
  (void)rank;
}

}  // namespace

TEST(ranks_that_wait_together_meet) {
  for (int size : {2, 3, 20}) {  // of so many the last one adds up for all, unless each has a processor
    ThreadWorld(size).run([&](Rank& rank) {
      for (int step = 0; step < (size < 20 ? 3000 : 200); ++step) {
        std::vector<float> data(step % 3 == 0 ? 1 : 900, static_cast<float>(step * 7 + rank.rank));
        CHECK(rank.run(step % 3 == 0 ? "one" : "many", data) == HVD_OK);
        check_sum(rank, data, step, size);
      }
      // On a busy machine so many may get a processor too late to meet even once.
      CHECK(met(rank.engine) > 0 || size >= 20);
    });
  }
}

TEST(others_are_asked_for_where_a_rank_does_not_wait) {
  constexpr int kSize = 3;
  ThreadWorld(kSize).run([&](Rank& rank) {
    std::mt19937 random(static_cast<unsigned>(rank.rank));
    for (int step = 0; step < 2000; ++step) {
      std::vector<float> other(3, 1.0f), data(5, static_cast<float>(step * 7 + rank.rank));
      hvd_handle pending = 0;
      if (step % 50 == 7) pending = rank.allreduce_async("other", other);
      const int code = random() % 8 == 0 ? rank.allreduce("data", data) : rank.run("data", data);
      CHECK(code == HVD_OK);
      check_sum(rank, data, step, kSize);
      if (pending != 0) {
        CHECK(rank.finish(pending) == HVD_OK);
        CHECK(other[0] == 3.0f);
      }
      if (random() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
    }
  });
}

// Otherwise a joined rank could take part, and operations would not have the same numbers everywhere.
TEST(nobody_meets_who_has_something_else_pending) {
  ThreadWorld(2).run([](Rank& rank) {
    std::vector<float> data(2), other(3, 1.0f);
    for (int step = 0; step < 100; ++step) CHECK(rank.run("data", data) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "before") == HVD_OK);
    const uint64_t before = met(rank.engine);
    hvd_handle pending = rank.rank == 0 ? rank.allreduce_async("other", other) : 0;
    for (int step = 0; step < 100; ++step) CHECK(rank.run("data", data) == HVD_OK);
    CHECK(met(rank.engine) == before);
    if (rank.rank == 1) pending = rank.allreduce_async("other", other);
    CHECK(rank.finish(pending) == HVD_OK && other[0] == 2.0f);
  });
}

// All ranks change something of what they have met for: it is not what it was.
TEST(what_the_program_changes_counts) {
  ThreadWorld(2).run([](Rank& rank) {
    struct Variant {
      int op;
      double prescale, postscale;
      float sum;  // of 1 and 3
    };
    const Variant variants[] = {{HVD_SUM, 1.0, 1.0, 4.0f},
                                {HVD_SUM, 1.0, 0.5, 2.0f},
                                {HVD_MAX, 1.0, 0.5, 1.5f},
                                {HVD_MAX, 2.0, 0.5, 3.0f},
                                {HVD_AVERAGE, 1.0, 1.0, 2.0f}};
    for (int step = 0; step < 2000; ++step) {
      const Variant& now = variants[step / 20 % 5];
      std::vector<float> data(2, static_cast<float>(1 + 2 * rank.rank));
      CHECK(rank.run("data", data, now.op, now.prescale, now.postscale) == HVD_OK);
      CHECK(data[0] == now.sum && data[1] == now.sum);
    }
  });
}

// Others may have the same name.
TEST(operations_of_process_sets_do_not_meet) {
  ThreadWorld(3).run([](Rank& rank) {
    int64_t id = 0;
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &id, 0, {0, 2}) == HVD_OK);
    for (int step = 0; step < 500; ++step) {
      std::vector<float> data(2, static_cast<float>(step * 7 + rank.rank)), of_set(2, 1.0f);
      CHECK(rank.run("data", data) == HVD_OK);
      check_sum(rank, data, step, 3);
      if (rank.rank == 1) continue;
      CHECK(rank.run("data", of_set, HVD_SUM, 1.0, 1.0, static_cast<int>(id)) == HVD_OK);
      CHECK(of_set[0] == 2.0f && of_set[1] == 2.0f);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);  // nobody shuts down before
  });
}

TEST(a_rank_that_has_joined_is_not_waited_for) {
  ThreadWorld(2).run([](Rank& rank) {
    for (int round = 0; round < 20; ++round) {
      for (int step = 0; step < 40; ++step) {
        if (rank.rank == 1 && step == 20) break;
        std::vector<float> data(2, static_cast<float>(step * 7 + rank.rank));
        CHECK(rank.run("data", data) == HVD_OK);
        check_sum(rank, data, step, step < 20 ? 2 : 1);
      }
      int64_t last = -1;
      CHECK(rank.simple(HVD_JOIN, "join", &last) == HVD_OK);
      CHECK(last == 0 || last == 1);
    }
  });
}

TEST(what_differs_is_refused_on_all_ranks_and_the_engine_goes_on) {
  ThreadWorld(2).run([](Rank& rank) {
    for (int step = 0; step < 300; ++step) {
      const bool differs = step % 10 == 9 && rank.rank == 1;
      std::vector<float> data(differs ? 3 : 2, static_cast<float>(step * 7 + rank.rank));
      const int code = rank.run("data", data);
      CHECK((code == HVD_OK) == (step % 10 != 9));
      if (code == HVD_OK) check_sum(rank, data, step, 2);
    }
  });
}

TEST(a_request_that_is_refused_has_no_handle) {
  ThreadWorld(2).run([](Rank& rank) {
    std::vector<float> data(2, 1.0f);
    const int64_t rows = 2;
    hvd_tensor tensor{data.data(), data.data(), &rows, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = Rank::request(HVD_ALLREDUCE, nullptr);
    request.tensor_count = 1;
    request.tensors = &tensor;
    hvd_handle handle = 7;
    CHECK(hvd_run(rank.engine, &request, 100.0, &handle) == HVD_INVALID_ARGUMENT);
    CHECK(handle == 0);
  });
}

TEST(an_abort_ends_who_waits) {
  ThreadWorld(2).run([](Rank& rank) {
    const auto begin = std::chrono::steady_clock::now();
    int code = HVD_OK;
    for (int step = 0; code == HVD_OK; ++step) {
      std::vector<float> data(2, 1.0f);
      if (rank.rank == 1 && step == 500) {
        hvd_abort(rank.engine, "enough");
        break;
      }
      code = rank.run("data", data);
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
    }
    if (rank.rank == 0) CHECK(code < 0);
  });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
