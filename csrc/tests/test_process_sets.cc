// Process sets through the C ABI, ranks as threads: how they come and go, and run beside each other.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"
#include "every_world.h"
#include "thread_world.h"

TEST(process_sets_come_and_go) {
  for (int transport : kTransports) {
    WorldOptions options;
    options.transport = transport;
    ThreadWorld(4, options).run([](Rank& rank) {
      for (int round = 0; round < 3; ++round) {
        int64_t low = 0, odd = 0, duplicate = 0;
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &low, 0, {0, 1, 2}) == HVD_OK);
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &odd, 0, {1, 3}) == HVD_OK);
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &duplicate, 0, {1, 3}) == HVD_INVALID_ARGUMENT);
        CHECK(low == 1 && odd == 2);
        for (size_t count : {3, 50000, 400000}) {
          std::vector<float> a = values(0, count), b = values(0, count), all = values(0, count);
          std::vector<hvd_handle> handles;
          if (rank.rank != 3) handles.push_back(rank.allreduce_async("a", a, HVD_SUM, 1));
          if (rank.rank % 2) handles.push_back(rank.allreduce_async("b", b, HVD_SUM, 2));
          handles.push_back(rank.allreduce_async("all", all));
          for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
          for (size_t i = 0; i < count; ++i) {
            if (rank.rank != 3) CHECK(a[i] == 3 * static_cast<float>((i % 13) * 3));
            if (rank.rank % 2) CHECK(b[i] == 2 * static_cast<float>((i % 13) * 3));
            CHECK(all[i] == 4 * static_cast<float>((i % 13) * 3));
          }
        }
        std::vector<float> outside(1);
        if (rank.rank == 3) CHECK(rank.allreduce_async("a", outside, HVD_SUM, 1) == HVD_INVALID_ARGUMENT);
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 1) == HVD_OK);
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 2) == HVD_OK);
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 2) == HVD_INVALID_ARGUMENT);
      }
    });
  }
}

TEST(operations_of_a_removed_set_are_finished_first) {
  for (const std::vector<int32_t>& members : {std::vector<int32_t>{0, 1}, std::vector<int32_t>{1, 2}}) {
    WorldOptions options;
    options.knobs.fusion_threshold = 0;
    ThreadWorld(3, options).run([&](Rank& rank) {
      for (int round = 0; round < 10; ++round) {
        int64_t set = 0;
        CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, members) == HVD_OK);
        std::vector<std::vector<float>> data(20, std::vector<float>(1000, 1.0f));
        data[0].resize(1000000, 1.0f);  // while this runs, the others are held back
        std::vector<hvd_handle> handles;
        if (std::count(members.begin(), members.end(), rank.rank) > 0)
          for (size_t i = 0; i < data.size(); ++i)
            handles.push_back(rank.allreduce_async("x" + std::to_string(i), data[i], HVD_SUM, 1));
        CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 1) == HVD_OK);
        for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
        for (size_t i = 0; i < handles.size(); ++i)
          for (float value : data[i]) CHECK(value == 2.0f);
      }
    });
  }
}

TEST(a_set_that_is_being_removed_takes_nothing_more) {
  std::atomic<bool> refused{false};
  ThreadWorld(2).run([&](Rank& rank) {
    int64_t set = 0;
    std::vector<float> data(3);
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {0}) == HVD_OK);
    if (rank.rank == 0) {
      hvd_request remove = Rank::request(HVD_REMOVE_PROCESS_SET, "remove");
      remove.process_set = 1;
      hvd_handle handle = rank.submit(remove);
      CHECK(rank.allreduce_async("late", data, HVD_SUM, 1) == HVD_INVALID_ARGUMENT);
      CHECK(std::string(hvd_last_error()).find("'late': process set 1 is being removed") !=
            std::string::npos);
      CHECK(rank.allreduce_async("late", data) > 0);  // other sets are as before
      refused = true;
      CHECK(rank.finish(handle) == HVD_OK);
    } else {
      while (!refused) std::this_thread::yield();
      CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 1) == HVD_OK);
    }
  });
}

TEST(join_and_process_sets_are_matters_of_all_ranks) {
  ThreadWorld(2).run([](Rank& rank) {
    int64_t set = 0;
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {rank.size - 1}) == HVD_OK);
    if (rank.rank == 1) {
      CHECK(rank.simple(HVD_JOIN, "join.noname", nullptr, 1) == HVD_INVALID_ARGUMENT);
      CHECK(rank.simple(HVD_ADD_PROCESS_SET, "more", nullptr, 1, {0}) == HVD_INVALID_ARGUMENT);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

// While the first member of a set is occupied, what it can't run anyway is held back, and then runs together.
// The timeline tells what has reached the coordinator, and when it has released something.
TEST(sets_without_rank_0_are_fused_too) {
  char path[] = "/tmp/hvd-test-XXXXXX";
  close(mkstemp(path));
  auto told = [&](const std::string& what) {
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    int count = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  auto wait_for = [](const auto& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!condition()) {
      CHECK(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  static std::atomic<bool> started, occupied, go, arrived;
  started = occupied = go = arrived = false;
  constexpr int kTensors = 10;
  ThreadWorld(3).run([&](Rank& rank) {
    int64_t set = 0;
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {1, 2}) == HVD_OK);
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(5, 1.0f));
    std::vector<float> first(1), second(1);
    std::vector<hvd_handle> handles;
    int cycles = 0;
    if (rank.rank == 0) {
      CHECK(hvd_timeline_start(rank.engine, path, 1) == HVD_OK);
      started = true;
      wait_for([] { return arrived.load(); });
      cycles = told("CYCLE_START");
      go = true;
    } else {
      wait_for([] { return started.load(); });
      const int64_t one = 1;
      hvd_tensor tensor{first.data(), first.data(), &one, 1, HVD_FLOAT32, HVD_CPU, 0};
      hvd_request request = Rank::request(HVD_ALLREDUCE, "first");
      request.process_set = 1;
      request.tensor_count = 1;
      request.tensors = &tensor;
      if (rank.rank == 1)
        request.done = [](void*, const hvd_outcome*) {  // keeps rank 1's engine thread
          occupied = true;
          while (!go) std::this_thread::yield();
        };
      CHECK(rank.submit(request) > 0);
      wait_for([] { return occupied.load(); });
      handles.push_back(rank.allreduce_async("second", second, HVD_MAX, 1));
      for (int i = 0; i < kTensors; ++i) {
        const std::string name = "t" + std::to_string(i);
        handles.push_back(rank.allreduce_async(name, data[static_cast<size_t>(i)], HVD_SUM, 1));
        // One after the other, so that only the coordinator can bring them together.
        wait_for([&] { return told("\"" + name + "\"") == 1; });
      }
      wait_for([&] { return told(R"("name": "1")") + told(R"("name": "2")") >= 2 * (2 + kTensors); });
      arrived = true;
      for (hvd_handle each : handles) CHECK(rank.finish(each) == HVD_OK);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
    if (rank.rank == 0) {
      CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
      CHECK(told("CYCLE_START") - cycles == 2);  // all of them, and the barrier
    }
  });
  unlink(path);
}

int main(int argc, char** argv) {
  alarm(120);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
