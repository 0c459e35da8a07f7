// What engines tell about themselves and each other: events, stacks, metrics, through the C ABI.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <sstream>

#include "thread_world.h"

namespace {

using Clock = std::chrono::steady_clock;

WorldOptions with_stalls(double seconds) {
  WorldOptions options;
  options.knobs.stall_check_time_seconds = seconds;
  options.knobs.peer_timeout_seconds = 3;  // heartbeats, which carry progress, come twice a second
  options.knobs.host_timeout_seconds = 100;
  return options;
}

struct Told {
  int kind = -1, rank = 0, how = 0;
  uint32_t number = 0;
  std::string text;
};

Told next_event(Rank& rank, double seconds = 60) {
  hvd_event event{};
  Told told;
  if (hvd_next_event(rank.engine, seconds, &event) == 0) return told;
  told = {event.kind, event.rank, event.how, event.number, event.text};
  hvd_free(event.text);
  return told;
}

// What Python's thread does: answers questions, until the engine ends or something comes whose text has
// `wanted`.
Told observe(Rank& rank, const std::string& wanted, const std::string& answer) {
  for (;;) {
    Told told = next_event(rank);
    CHECK(told.kind >= 0);
    if (told.kind == HVD_EVENT_DUMP) hvd_answer(rank.engine, told.number, answer.c_str());
    if (told.kind == HVD_EVENT_CLOSED || told.text.find(wanted) != std::string::npos) return told;
  }
}

std::map<std::string, uint64_t> metrics(Rank& rank) {
  const int32_t count = hvd_metrics(rank.engine, nullptr, 0);
  std::vector<uint64_t> values(static_cast<size_t>(count));
  CHECK(hvd_metrics(rank.engine, values.data(), count) == count);
  std::istringstream names(hvd_metric_names());
  std::map<std::string, uint64_t> all;
  std::string name;
  for (size_t i = 0; names >> name; ++i) all[name] = values.at(i);
  CHECK(all.size() == values.size());
  return all;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(a_stall_is_told_with_the_stack_of_the_missing_rank_and_its_end) {
  static std::atomic<bool> told;
  told = false;
  ThreadWorld(3, with_stalls(1)).run([](Rank& rank) {
    std::vector<float> data(1);
    if (rank.rank == 1) {
      std::thread observer([&] { observe(rank, "there is no such text", "MainThread: train.py:88 load"); });
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK(rank.allreduce("late", data) == HVD_OK);
      CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
      hvd_shutdown(rank.engine);
      observer.join();
      return;
    }
    const hvd_handle handle = rank.allreduce_async("late", data);
    if (rank.rank == 0) {
      const Told stall = observe(rank, R"("event": "stall")", "");
      CHECK(has(stall.text, R"("tensors": ["late"])") &&
            has(stall.text, R"("missing": [{"rank": 1, "host": "thread")"));
      CHECK(has(stall.text, R"("ready": [0, 2])"));
      CHECK(has(stall.text, "Rank 1 MainThread: train.py:88 load"));
      told = true;
    }
    CHECK(rank.finish(handle) == HVD_OK);
    if (rank.rank == 0) CHECK(has(observe(rank, "stall_resolved", "").text, "late goes on"));
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

TEST(ranks_with_equal_stacks_are_told_of_together_and_what_was_told_is_counted) {
  static std::atomic<bool> told;
  told = false;
  ThreadWorld(3, with_stalls(1)).run([](Rank& rank) {
    std::vector<float> data(1);
    if (rank.rank > 0) {
      std::thread observer([&] { observe(rank, "there is no such text", "MainThread: train.py:88 load"); });
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK(rank.allreduce("late", data) == HVD_OK);
      CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
      hvd_shutdown(rank.engine);
      observer.join();
      return;
    }
    const hvd_handle handle = rank.allreduce_async("late", data);
    CHECK(has(observe(rank, R"("event": "stall")", "").text, "Rank 1, 2 MainThread: train.py:88 load"));
    CHECK(metrics(rank)["stalls"] >= 1 && metrics(rank)["stalled"] == 1);
    told = true;
    CHECK(rank.finish(handle) == HVD_OK);
    CHECK(has(observe(rank, "stall_resolved", "").text, "late goes on"));
    CHECK(metrics(rank)["stalled"] == 0);
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

// Rank 0 makes blocking calls in a row, so that the coordinator's thread keeps away.
TEST(a_stall_is_told_while_rank_0_is_busy_with_something_else) {
  static std::atomic<bool> told;
  told = false;
  ThreadWorld(2, with_stalls(1)).run([](Rank& rank) {
    int64_t set = 0;
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {0}) == HVD_OK);
    std::vector<float> data(1), other(1);
    hvd_handle handle = 0;
    if (rank.rank == 0) {
      handle = rank.allreduce_async("late", data);
      std::thread observer([&] {
        observe(rank, R"("event": "stall")", "");
        told = true;
      });
      while (!told) CHECK(rank.allreduce("alone", other, HVD_SUM, static_cast<int>(set)) == HVD_OK);
      observer.join();
    } else {
      while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      handle = rank.allreduce_async("late", data);
    }
    CHECK(rank.finish(handle) == HVD_OK);
  });
}

TEST(an_operation_that_hangs_in_a_callback_is_told) {
  static std::atomic<bool> told;
  told = false;
  ThreadWorld(2, with_stalls(1)).run([](Rank& rank) {
    std::vector<float> data(1);
    const int64_t one = 1;
    hvd_tensor tensor{data.data(), data.data(), &one, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = Rank::request(HVD_ALLREDUCE, "stuck");
    request.tensor_count = 1;
    request.tensors = &tensor;
    if (rank.rank == 1)
      request.done = [](void*, const hvd_outcome*) {
        while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
    const hvd_handle handle = rank.submit(request);
    CHECK(handle > 0);
    if (rank.rank == 0) {
      CHECK(rank.finish(handle) == HVD_OK);
      const Told hang = observe(rank, R"("event": "hang")", "");
      CHECK(has(hang.text, "stuck was started and has not ended for"));
      CHECK(has(hang.text, R"("missing": [{"rank": 0)") && has(hang.text, R"("ready": [1])"));
      told = true;
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

TEST(stacks_come_on_demand_from_all_ranks) {
  static std::atomic<int> observing;
  observing = 0;
  ThreadWorld(3, with_stalls(0)).run([](Rank& rank) {
    const std::string mine = "stack of " + std::to_string(rank.rank);
    std::map<int, Told> answers;
    std::thread observer([&] {
      observing++;
      for (;;) {
        const Told told = next_event(rank);
        if (told.kind == HVD_EVENT_CLOSED) return;
        if (told.kind == HVD_EVENT_DUMP) hvd_answer(rank.engine, told.number, mine.c_str());
        if (told.kind == HVD_EVENT_STACKS) answers[told.rank] = told;
        if (answers.size() == 3) return;
      }
    });
    while (observing < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (rank.rank == 0) {
      CHECK(hvd_ask_stacks(rank.engine, 3, "request") == HVD_INVALID_ARGUMENT);
      CHECK(hvd_ask_stacks(rank.engine, -1, "request") > 0);
      observer.join();
      for (int i = 0; i < 3; ++i) CHECK(answers[i].text == "stack of " + std::to_string(i));
      CHECK(answers[1].how == HVD_STACKS_PYTHON);
    } else {
      CHECK(hvd_ask_stacks(rank.engine, 0, "request") == HVD_INVALID_ARGUMENT);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
    hvd_shutdown(rank.engine);
    if (observer.joinable()) observer.join();
  });
}

// Nobody answers, as if a call of C kept Python's lock: the handler of the signal does, else the kernel.
TEST(without_an_answer_the_signal_tells_and_then_the_kernel) {
  static int pipe_ends[2];
  CHECK(pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC) == 0);
  signal(SIGRTMIN + 9, [](int) { CHECK(write(pipe_ends[1], "from the handler", 16) == 16); });
  ThreadWorld(1, with_stalls(0)).run([](Rank& rank) {
    std::thread parked([&] { CHECK(next_event(rank).kind == HVD_EVENT_DUMP); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(hvd_ask_stacks(rank.engine, -1, "request") > 0);
    parked.join();
    Told told = next_event(rank);  // 0.7 s later; no signal is known yet
    CHECK(told.kind == HVD_EVENT_STACKS && told.how == HVD_STACKS_STATES && has(told.text, "hvd-engine: "));
    hvd_stack_signal(rank.engine, SIGRTMIN + 9, pipe_ends[0]);
    CHECK(hvd_ask_stacks(rank.engine, -1, "request") > 0);
    CHECK(next_event(rank).kind == HVD_EVENT_DUMP);
    told = next_event(rank);
    CHECK(told.kind == HVD_EVENT_STACKS && told.how == HVD_STACKS_SIGNAL && told.text == "from the handler");
    signal(SIGRTMIN + 9, SIG_DFL);  // the application's doing: the signal would now end the process
    CHECK(hvd_ask_stacks(rank.engine, -1, "request") > 0);
    CHECK(next_event(rank).kind == HVD_EVENT_DUMP);
    told = next_event(rank);
    CHECK(told.kind == HVD_EVENT_STACKS && told.how == HVD_STACKS_STATES);
  });
}

TEST(metrics_are_what_was_done) {
  ThreadWorld(2, with_stalls(0)).run([](Rank& rank) {
    std::vector<float> data(1000);
    for (int i = 0; i < 10; ++i) CHECK(rank.allreduce("x", data) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "barrier") == HVD_OK);
    for (int i = 0; i < 3; ++i) hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    auto all = metrics(rank);
    CHECK(all["operations.allreduce"] == 10 && all["tensors.allreduce"] == 10);
    CHECK(all["bytes.allreduce"] == 40'000 && all["operations.barrier"] == 1 && all["steps"] == 3);
    CHECK(all["cache_hits"] == 9 && all["cache_misses"] == 2 && all["pending"] == 0);
    CHECK(all["operation_seconds.allreduce.0.count"] == 10 && all["operation_seconds.barrier.0.count"] == 1);
    CHECK(all["operation_seconds.allreduce.1.count"] == 0 && all["negotiation_seconds.count"] == 11);
    CHECK(all["operation_seconds.allreduce.0.sum_ns"] > 0 && all["blocked_ns"] > 0);
    CHECK(all["queue_seconds.count"] == (rank.rank == 0 ? 11u : 0u));
    CHECK(all["network_bytes.sent"] == 0);  // all within shared memory
    CHECK(all["tensors_per_operation.sum"] == 11 && all["tensors_per_operation.0"] == 11);
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

TEST(what_goes_over_sockets_is_counted_and_rates_follow) {
  WorldOptions options = with_stalls(0);
  options.transport = HVD_TRANSPORT_TCP;
  ThreadWorld(2, options).run([](Rank& rank) {
    std::vector<float> data(100'000);
    const auto deadline = Clock::now() + std::chrono::seconds(100);
    std::vector<float> more(1, 1.0F);
    int times = 0;
    std::map<std::string, uint64_t> all;
    while (more[0] > 0) {  // until both have seen rates
      CHECK(Clock::now() < deadline);
      CHECK(rank.allreduce("x", data) == HVD_OK);
      ++times;
      all = metrics(rank);
      more[0] = all["bus_rate"] == 0 || all["cpu_ppm"] == 0 || all["exposed_ppm"] == 0 ? 1.0F : 0.0F;
      CHECK(rank.allreduce("more", more) == HVD_OK);
    }
    // Of two ranks each sends one half and the sum of the other.
    CHECK(all["network_bytes.sent"] >= 400'000u * static_cast<uint64_t>(times));
    CHECK(all["network_bytes.sent"] < 410'000u * static_cast<uint64_t>(times));
    CHECK(all["network_bytes.received"] >= 400'000u * static_cast<uint64_t>(times));
    CHECK(all["exposed_ppm"] <= 1'000'000 && all["resident_bytes"] > 0);
  });
}

TEST(rank_0_hears_how_far_the_others_are_and_what_their_clocks_say) {
  ThreadWorld(2, with_stalls(0)).run([](Rank& rank) {
    std::vector<float> data(1000);
    for (int i = 0; i < 10; ++i) CHECK(rank.allreduce("x", data) == HVD_OK);
    if (rank.rank == 0) {
      hvd_summary summaries[2];
      const auto deadline = Clock::now() + std::chrono::seconds(100);
      for (;;) {
        CHECK(Clock::now() < deadline);
        CHECK(hvd_summaries(rank.engine, summaries, 2) == 2);
        if (summaries[1].known && summaries[1].operations >= 10 && summaries[1].rtt_ns > 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      CHECK(summaries[0].operations == 10 && summaries[1].bytes == 40'000 && summaries[1].resident_bytes > 0);
      CHECK(std::string(summaries[1].name) == "x" && summaries[1].rank == 1 && summaries[1].running_ns == 0);
      CHECK(summaries[0].last_ready + summaries[1].last_ready == 10);
      // One clock: the difference that is found is within what a message takes.
      const int64_t offset = summaries[1].clock_offset_ns;
      CHECK(static_cast<uint64_t>(offset < 0 ? -offset : offset) <= summaries[1].rtt_ns);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

TEST(a_failure_is_told_with_the_last_operations) {
  std::atomic<int> done{0};
  ThreadWorld(2, with_stalls(0)).run([&done](Rank& rank) {
    std::vector<float> data(25);
    CHECK(rank.allreduce("before", data) == HVD_OK);
    ++done;
    while (done < 2) std::this_thread::yield();  // an abort would fail the other's, too
    if (rank.rank == 1) hvd_abort(rank.engine, "for the test");
    const Told told = observe(rank, R"("event": "failure")", "");
    CHECK(has(told.text, "for the test") && has(told.text, "before (100 bytes, "));
    CHECK(metrics(rank)["failures"] == 1);
  });
}

TEST(waiting_operations_fail_before_anything_is_written_about_it) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  for (const std::string block(4096, 'x'); write(ends[1], block.data(), block.size()) > 0;) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const int standard_error = dup(2);
  CHECK(dup2(ends[1], 2) == 2);  // whoever reads it does not
  WorldOptions options = with_stalls(0);
  options.knobs.log_level = HVD_LOG_WARNING;
  static std::atomic<bool> failed, over;
  static std::atomic<int> begun;  // the abort must not meet the other rank's first operation
  failed = over = false;
  begun = 0;
  ThreadWorld(2, options).run([&](Rank& rank) {
    CHECK(rank.simple(HVD_BARRIER, "before") == HVD_OK);
    for (begun++; begun < 2;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank.rank == 1) {  // which the pending operation waits for
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    hvd_request request = Rank::request(HVD_BARRIER, "pending");
    request.done = [](void*, const hvd_outcome*) { failed = true; };
    CHECK(rank.submit(request) > 0);
    hvd_abort(rank.engine, "for the test");
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (!failed && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool in_time = failed;
    char buffer[4096];
    std::string read_back;
    while (!has(read_back, "before the failure"))
      read_back.append(buffer, static_cast<size_t>(read(ends[0], buffer, sizeof buffer)));
    CHECK(dup2(standard_error, 2) == 2);
    over = true;
    CHECK(in_time);
  });
  for (int fd : {ends[0], ends[1], standard_error}) close(fd);
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
