// What a step is, what is tuned and what is reported; and engines whose parameters change.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "engine/autotune.h"
#include "thread_world.h"

namespace {

using hvd::Autotune;
using hvd::Tuning;
using hvd::wire::Request;

constexpr uint64_t kMillisecond = 1000000;

// A job of which only the releases are seen: two allreduces a step.
struct Job {
  std::vector<std::string> reports;
  Autotune tuning;
  uint64_t now = 1;
  int changes = 0;

  explicit Job(const Autotune::Options& options)
      : tuning(options, [this](const std::string& json) { reports.push_back(json); }) {}

  void release(const std::string& name, int kind = HVD_ALLREDUCE) {
    Request request;
    request.kind = kind;
    request.name = name;
    request.tensors.resize(1);
    changes += tuning.released({&request}, 1000, now);
  }
  void mark() { changes += tuning.marked(now); }
  // The time of a step with what is chosen.
  Tuning chosen() const {
    Tuning tuning_now;
    CHECK(hvd::take_choices({tuning.choices().begin(), tuning.choices().end()}, &tuning_now));
    return tuning_now;
  }
  bool ended_with(const std::string& text) const {
    return tuning.finished() && !reports.empty() && reports.back().find(text) != std::string::npos;
  }
};

Autotune::Options of_mesh() {
  Autotune::Options options;
  options.parts = hvd::kTunesMesh;
  return options;
}

uint64_t better_with_long_chunks(const Tuning& tuning) {
  return (tuning.mesh_chunk == 1 << 20 ? 80 : 100) * kMillisecond;
}

}  // namespace

TEST(a_step_is_the_time_between_two_of_a_name) {
  Job job(of_mesh());
  for (int i = 0; i < 100; ++i) job.release("parameter." + std::to_string(i), HVD_BROADCAST);
  int steps = 0;
  for (; steps < 420 && !job.tuning.finished(); ++steps) {
    job.release("a");
    job.now += better_with_long_chunks(job.chosen());
    job.release("b");
  }
  CHECK(steps <= 402 && job.changes > 0);
  CHECK(job.chosen().mesh_chunk == 1 << 20);
  CHECK(job.ended_with(R"("changed": {"mesh_chunk": 1048576}, "ratio": 0.8)"));
  CHECK(job.reports.front().find(R"("state": "sample", "stage": "search")") != std::string::npos);
  CHECK(job.reports.front().find(R"("step_seconds": 0.1)") != std::string::npos);
  CHECK(job.reports.front().find(R"("score": 0.02)") != std::string::npos);
  CHECK(job.reports.front().find("slot_parts") == std::string::npos);  // there is no shared memory
}

TEST(marks_count_more_than_names) {
  Job job(of_mesh());
  for (int step = 0; step < 402 && !job.tuning.finished(); ++step) {
    for (int i = 0; i < 3; ++i) {  // the same name several times a step, and at odd times
      job.release("a");
      job.now += static_cast<uint64_t>(i) * better_with_long_chunks(job.chosen()) / 3;
    }
    job.mark();
  }
  CHECK(job.ended_with(R"("changed": {"mesh_chunk": 1048576})"));
}

TEST(marks_are_enough) {
  Job job(of_mesh());
  for (int step = 0; step < 402 && !job.tuning.finished(); ++step) {
    job.release("allreduce.noname." + std::to_string(step));
    job.now += better_with_long_chunks(job.chosen());
    job.mark();
  }
  CHECK(job.ended_with(R"("changed": {"mesh_chunk": 1048576})"));
}

TEST(without_names_that_come_back_it_gives_up) {
  Job job(of_mesh());
  for (int i = 0; i < 100; ++i) job.release("parameter." + std::to_string(i), HVD_BROADCAST);
  for (int i = 0; i < 199; ++i) job.release("allreduce.noname." + std::to_string(i));
  CHECK(job.reports.empty());
  job.release("the 200th");
  CHECK(job.reports.size() == 1 && job.reports[0].find("given_up") != std::string::npos);
  CHECK(job.reports[0].find("no operation of the last 200 came back") != std::string::npos);
  for (int i = 0; i < 4000; ++i) job.release("further." + std::to_string(i));
  CHECK(job.ended_with("given_up") && job.reports.size() == 1 && job.changes == 0);
}

TEST(a_first_step_may_have_more_operations_than_that) {
  Job job(of_mesh());
  for (int step = 0; step < 402 && !job.tuning.finished(); ++step) {
    for (int i = 0; i < 300; ++i) job.release("gradient." + std::to_string(i));
    job.now += better_with_long_chunks(job.chosen());
  }
  CHECK(job.ended_with(R"("changed": {"mesh_chunk": 1048576})"));
}

TEST(a_minute_is_enough_however_long_steps_are) {
  for (uint64_t factor : {10, 20, 300}) {  // of 0.1 s
    Job job(of_mesh());
    int steps = 0;
    uint64_t since = 0;  // the warm-up
    for (; !job.tuning.finished(); ++steps) {
      if (steps == 16 + 2) since = job.now;
      job.release("a");
      job.now += factor * better_with_long_chunks(job.chosen());
    }
    CHECK(job.now - since <= 60'000 * kMillisecond + 2 * factor * 100 * kMillisecond);
    CHECK(job.ended_with(R"("changed": {}, "ratio": 1)"));
    CHECK(job.chosen().mesh_chunk == Tuning().mesh_chunk);
  }
}

TEST(a_threshold_that_was_chosen_stays) {
  Autotune::Options options = of_mesh();
  options.keep_fusion = true;
  Job job(options);
  while (!job.tuning.finished()) {
    job.release("a");
    job.now += 100 * kMillisecond;
    CHECK(job.chosen().fusion_threshold == Tuning().fusion_threshold);
  }
  CHECK(job.ended_with(R"("changed": {}, "ratio": 1)"));
  CHECK(job.reports.back().find("fusion_threshold") == std::string::npos);
}

TEST(a_profile_is_tried_first) {
  Autotune::Options options = of_mesh();
  options.suggested.assign(hvd::kTunableCount, 0);
  for (size_t i = 0; i < hvd::kTunableCount; ++i) {
    if (hvd::kTunables[i].value == &Tuning::mesh_chunk) options.suggested[i] = 1 << 20;
    if (hvd::kTunables[i].value == &Tuning::ahead) options.suggested[i] = 17;  // no such choice
  }
  Job job(options);
  while (!job.tuning.finished()) {
    job.release("a");
    job.now += better_with_long_chunks(job.chosen());
  }
  CHECK(job.reports.size() == 2 && job.reports.front().find(R"("stage": "profile")") != std::string::npos);
  CHECK(job.ended_with(R"("changed": {"mesh_chunk": 1048576}, "ratio": 0.8)"));
}

// ---- engines

namespace {

void start_autotune(Rank& rank, bool shuffle) {
  hvd_autotune_options options{};
  options.struct_size = sizeof options;
  options.warmup_samples = 0;
  options.steps_per_sample = 1;
  options.max_samples = 20;
  options.shuffle = shuffle ? 1 : 0;
  CHECK((hvd_autotune(rank.engine, &options) == HVD_OK) == (rank.rank == 0));
  options.steps_per_sample = 0;
  CHECK(hvd_autotune(rank.engine, &options) == HVD_INVALID_ARGUMENT);
}

// Several at once and of many sizes, so that they are fused, or not, and go all ways; checked exactly.
void run_step(Rank& rank, int step) {
  constexpr size_t kCounts[] = {1, 900, 4000, 9000, 20000, 70000, 5, 300000};
  std::vector<std::vector<float>> data;
  std::vector<hvd_handle> handles;
  for (size_t count : kCounts) {
    if (count > 100000 && step % 8 != 0) continue;  // much to check
    data.emplace_back(count);
    for (size_t i = 0; i < count; ++i)
      data.back()[i] =
          static_cast<float>((i + static_cast<size_t>(step)) % 13 + static_cast<size_t>(rank.rank));
    handles.push_back(rank.allreduce_async("t" + std::to_string(handles.size()), data.back()));
  }
  for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
  const auto size = static_cast<size_t>(rank.size), sum = size * (size - 1) / 2;
  for (const std::vector<float>& each : data)
    for (size_t i = 0; i < each.size(); ++i)
      CHECK(each[i] == static_cast<float>(size * ((i + static_cast<size_t>(step)) % 13) + sum));
}

std::vector<WorldOptions> worlds() {
  std::vector<WorldOptions> all(3);
  all[1].transport = HVD_TRANSPORT_TCP;
  all[2].transport = HVD_TRANSPORT_HIERARCHICAL;
  all[2].hosts = {0, 0, 1};
  return all;
}

}  // namespace

TEST(other_parameters_for_each_operation) {
  for (const WorldOptions& options : worlds()) {
    ThreadWorld(3, options).run([](Rank& rank) {
      start_autotune(rank, true);
      int64_t set = 0;
      CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {0, 2}) == HVD_OK);
      for (int step = 0; step < 20; ++step) {
        run_step(rank, step);
        if (rank.rank == 1) continue;
        std::vector<float> data(50000, 1.0f);
        CHECK(rank.allreduce("of a set", data, HVD_SUM, static_cast<int>(set)) == HVD_OK);
        CHECK(data.front() == 2.0f && data.back() == 2.0f);
      }
      CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
    });
  }
}

TEST(a_search_ends_and_tells) {
  ThreadWorld(2).run([](Rank& rank) {
    start_autotune(rank, false);
    for (int step = 0; step < 150; ++step) {
      run_step(rank, step);
      if (step % 2 == 0) hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    }
    if (rank.rank != 0) return;
    std::string last;
    hvd_event event{};
    while (hvd_next_event(rank.engine, 0, &event) == 1) {
      CHECK(event.kind == HVD_EVENT_TUNING);
      last = event.text;
      hvd_free(event.text);
    }
    std::printf("%s\n", last.c_str());
    CHECK(last.find(R"("state": )") != std::string::npos);
  });
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
