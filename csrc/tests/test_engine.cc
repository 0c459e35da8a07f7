// The engine through its C ABI, ranks as threads: negotiation, fusion, groups, errors, life cycle.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>

#include "check.h"
#include "engine/idle_backoff.h"
#include "every_world.h"
#include "float_modes.h"
#include "thread_world.h"

TEST(allreduce_of_many_sizes) {
  in_every_world([](Rank& rank) {
    for (size_t count : {0, 1, 7, 1000, 8191, 70001, 600000}) {
      std::vector<float> data = values(rank.rank, count);
      CHECK(rank.allreduce("x" + std::to_string(count), data) == HVD_OK);
      check_sum(data, rank.size);
    }
  });
}

TEST(shuffled_submission_of_many_tensors) {
  in_every_world([](Rank& rank) {
    constexpr size_t kTensors = 60;
    for (int round = 0; round < 3; ++round) {  // from the second round on through the cache
      std::vector<std::vector<float>> data(kTensors);
      std::vector<hvd_handle> handles(kTensors);
      std::vector<size_t> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(round * 100 + rank.rank)));
      for (size_t i : order) {
        data[i] = values(rank.rank, 10 + i * 37);
        handles[i] = rank.allreduce_async("t" + std::to_string(i), data[i]);
      }
      for (size_t i = 0; i < kTensors; ++i) {
        CHECK(rank.finish(handles[i]) == HVD_OK);
        check_sum(data[i], rank.size);
      }
    }
  });
}

TEST(cache_smaller_than_the_working_set) {
  WorldOptions options;
  options.knobs.cache_capacity = 3;
  ThreadWorld(3, options).run([](Rank& rank) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<float>> data(7);
      std::vector<hvd_handle> handles(7);
      for (size_t k = 0; k < 7; ++k) {
        size_t i = (k + static_cast<size_t>(rank.rank * 2 + round)) % 7;
        data[i] = values(rank.rank, 5 + i);
        handles[i] = rank.allreduce_async("c" + std::to_string(i), data[i]);
      }
      for (size_t i = 0; i < 7; ++i) {
        CHECK(rank.finish(handles[i]) == HVD_OK);
        check_sum(data[i], rank.size);
      }
    }
  });
}

TEST(allgather_with_uneven_rows_that_change) {
  in_every_world([](Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      int64_t shape[] = {rank.rank + round, 2};
      std::vector<int32_t> data(static_cast<size_t>(shape[0] * 2), rank.rank);
      hvd_tensor tensor{data.data(), nullptr, shape, 2, HVD_INT32, HVD_CPU, 0};
      hvd_request request = Rank::request(HVD_ALLGATHER, "gather");
      request.tensor_count = 1;
      request.tensors = &tensor;
      hvd_handle handle = rank.submit(request);
      CHECK(rank.wait(handle) == HVD_OK);
      int64_t out[2];
      CHECK(hvd_output_ndim(rank.engine, handle, 0) == 2);
      hvd_output_shape(rank.engine, handle, 0, out);
      CHECK(out[0] == rank.size * (rank.size - 1) / 2 + rank.size * round && out[1] == 2);
      auto* result = static_cast<int32_t*>(hvd_take_output(rank.engine, handle, 0));
      size_t at = 0;
      for (int r = 0; r < rank.size; ++r)
        for (int i = 0; i < (r + round) * 2; ++i) CHECK(result[at++] == r);
      hvd_free(result);
      hvd_release(rank.engine, handle);
    }
  });
}

TEST(groups_of_mixed_types) {
  in_every_world([](Rank& rank) {
    int64_t three = 3, five = 5;
    float floats[3] = {1, 2, static_cast<float>(rank.rank)};
    int64_t longs[5] = {rank.rank, 1, 1, 1, -7};
    hvd_tensor tensors[] = {{floats, floats, &three, 1, HVD_FLOAT32, HVD_CPU, 0},
                            {longs, longs, &five, 1, HVD_INT64, HVD_CPU, 0}};
    hvd_request request = Rank::request(HVD_ALLREDUCE, "group");
    request.reduce_op = HVD_AVERAGE;
    request.tensor_count = 2;
    request.tensors = tensors;
    CHECK(rank.finish(rank.submit(request)) == HVD_OK);
    CHECK(floats[0] == 1 && floats[1] == 2);
    CHECK(longs[4] == -7 && longs[1] == 1);
  });
}

TEST(mismatches_fail_everywhere_and_the_engine_goes_on) {
  in_every_world([](Rank& rank) {
    if (rank.size == 1) return;
    std::vector<float> data = values(rank.rank, rank.rank == 1 ? 4 : 5);
    hvd_handle handle = rank.allreduce_async("bad shape", data);
    CHECK(rank.wait(handle) == HVD_FAILED_PRECONDITION);
    CHECK(std::string(hvd_error(rank.engine, handle)).find("bad shape") != std::string::npos);
    hvd_release(rank.engine, handle);
    std::vector<float> again = values(rank.rank, 100);
    CHECK(rank.allreduce("bad op", again, rank.rank == 0 ? HVD_MIN : HVD_SUM) == HVD_FAILED_PRECONDITION);
    CHECK(rank.allreduce("good", again) == HVD_OK);
    check_sum(again, rank.size);
  });
}

TEST(duplicate_names_are_refused) {
  ThreadWorld(2).run([](Rank& rank) {
    std::vector<float> first = values(rank.rank, 10), second = first;
    hvd_handle handle = 0;
    if (rank.rank == 0) {
      handle = rank.allreduce_async("twice", first);
      CHECK(rank.allreduce_async("twice", second) == HVD_INVALID_ARGUMENT);
    }
    std::vector<float> meet(1);
    CHECK(rank.allreduce("meet", meet) == HVD_OK);
    if (rank.rank == 1) handle = rank.allreduce_async("twice", first);
    CHECK(rank.finish(handle) == HVD_OK);
    check_sum(first, 2);
  });
}

TEST(barrier_waits_for_all) {
  std::atomic<int> arrived{0};
  ThreadWorld(4).run([&](Rank& rank) {
    arrived++;
    CHECK(rank.simple(HVD_BARRIER, "barrier.noname") == HVD_OK);
    CHECK(arrived == rank.size);
  });
}

TEST(alltoall_and_reducescatter) {
  in_every_world([](Rank& rank) {
    std::vector<int32_t> splits;
    std::vector<float> data;
    for (int r = 0; r < rank.size; ++r) {
      splits.push_back(r + 1);
      for (int i = 0; i <= r; ++i) data.push_back(static_cast<float>(rank.rank * 10 + r));
    }
    auto rows = static_cast<int64_t>(data.size());
    hvd_tensor tensor{data.data(), nullptr, &rows, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = Rank::request(HVD_ALLTOALL, "a2a");
    request.tensor_count = 1;
    request.tensors = &tensor;
    request.numbers = splits.data();
    request.number_count = rank.size;
    hvd_handle handle = rank.submit(request);
    CHECK(rank.wait(handle) == HVD_OK);
    auto* out = static_cast<float*>(hvd_take_output(rank.engine, handle, 0));
    for (int r = 0; r < rank.size; ++r)
      for (int i = 0; i <= rank.rank; ++i)
        CHECK(out[r * (rank.rank + 1) + i] == static_cast<float>(r * 10 + rank.rank));
    hvd_free(out);
    hvd_release(rank.engine, handle);

    std::vector<float> full = values(rank.rank, 11);
    rows = 11;
    tensor = {full.data(), nullptr, &rows, 1, HVD_FLOAT32, HVD_CPU, 0};
    request = Rank::request(HVD_REDUCESCATTER, "rs");
    request.tensor_count = 1;
    request.tensors = &tensor;
    handle = rank.submit(request);
    CHECK(rank.wait(handle) == HVD_OK);
    int64_t mine = 0;
    hvd_output_shape(rank.engine, handle, 0, &mine);
    CHECK(mine == 11 / rank.size + (rank.rank < 11 % rank.size ? 1 : 0));
    size_t start = 0;
    for (int r = 0; r < rank.rank; ++r)
      start += static_cast<size_t>(11 / rank.size + (r < 11 % rank.size ? 1 : 0));
    out = static_cast<float*>(hvd_take_output(rank.engine, handle, 0));
    for (size_t i = 0; i < static_cast<size_t>(mine); ++i) CHECK(out[i] == sum_at(start + i, rank.size));
    hvd_free(out);
    hvd_release(rank.engine, handle);
  });
}

TEST(even_alltoall_of_more_rows_than_can_be_told_is_refused) {
  ThreadWorld(2).run([](Rank& rank) {
    for (int64_t rows : {int64_t{1} << 32, int64_t{1} << 33, (int64_t{1} << 33) + 2}) {
      const int64_t shape[] = {rows, 0};
      char byte = 0;
      hvd_tensor tensor{&byte, nullptr, shape, 2, HVD_UINT8, HVD_CPU, 0};
      hvd_request request = Rank::request(HVD_ALLTOALL, "huge");
      request.tensor_count = 1;
      request.tensors = &tensor;
      CHECK(rank.submit(request) == HVD_INVALID_ARGUMENT);
      const std::string text = hvd_last_error();
      CHECK(text.find("'huge'") != std::string::npos && text.find("2147483647") != std::string::npos);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
  });
}

TEST(abort_reaches_every_rank) {
  std::atomic<int> past_first{0};
  ThreadWorld(3).run([&](Rank& rank) {
    std::vector<float> data(10);
    CHECK(rank.allreduce("first", data) == HVD_OK);
    past_first++;
    if (rank.rank == 2) {
      while (past_first < 3) std::this_thread::yield();
      hvd_abort(rank.engine, "rank 2 gives up");
    } else {
      hvd_handle handle = rank.allreduce_async("never", data);
      if (handle < 0) {  // the abort was faster
        CHECK(handle == HVD_UNKNOWN);
        return;
      }
      CHECK(rank.wait(handle) == HVD_UNKNOWN);
      CHECK(std::string(hvd_error(rank.engine, handle)).find("gives up") != std::string::npos);
    }
    while (rank.allreduce_async("later", data) > 0) {
    }
    CHECK(std::string(hvd_last_error()).find("gives up") != std::string::npos ||
          std::string(hvd_last_error()).find("pending") != std::string::npos);
    CHECK(hvd_culprit(rank.engine, nullptr) == 2);
    hvd_shutdown(rank.engine);
    CHECK(hvd_culprit(rank.engine, nullptr) == 2);
  });
}

TEST(shutdown_fails_what_is_pending_elsewhere) {
  ThreadWorld(2).run([](Rank& rank) {
    if (rank.rank == 0) return;
    std::vector<float> data(10);
    hvd_handle handle = rank.allreduce_async("alone", data);
    if (handle > 0) CHECK(rank.finish(handle) == HVD_UNKNOWN);
    CHECK(rank.allreduce_async("after", data) == HVD_UNKNOWN);
    CHECK(std::string(hvd_last_error()).find("shut down") != std::string::npos);
    CHECK(hvd_culprit(rank.engine, nullptr) == -1);
  });
}

TEST(stall_shutdown_names_tensor_and_missing_rank) {
  WorldOptions options;
  options.knobs.stall_shutdown_time_seconds = 1.0;
  ThreadWorld(2, options).run([](Rank& rank) {
    std::vector<float> data(1);
    hvd_handle handle = rank.allreduce_async(rank.rank == 0 ? "on 0" : "on 1", data);
    CHECK(rank.wait(handle) == HVD_UNKNOWN);
    std::string text = hvd_error(rank.engine, handle);
    CHECK((text.find("'on 0' has waited for rank(s) 1") == 0 && hvd_culprit(rank.engine, nullptr) == 1) ||
          (text.find("'on 1' has waited for rank(s) 0") == 0 && hvd_culprit(rank.engine, nullptr) == 0));
  });
}

TEST(finish_waits_and_releases_what_has_succeeded) {
  ThreadWorld(2).run([](Rank& rank) {
    std::vector<float> data(10), other(static_cast<size_t>(10 + rank.rank));
    const hvd_handle right = rank.allreduce_async("right", data),
                     wrong = rank.allreduce_async("wrong", other);
    CHECK(hvd_finish(rank.engine, right, 60) == HVD_OK);
    CHECK(hvd_poll(rank.engine, right) == 1);
    CHECK(hvd_finish(rank.engine, right, 60) == HVD_OK);
    CHECK(hvd_finish(rank.engine, wrong, 60) < 0);
    CHECK(std::string(hvd_error(rank.engine, wrong)).find("'wrong'") != std::string::npos);
    hvd_release(rank.engine, wrong);
  });
}

TEST(background_threads_keep_away_for_longer_in_long_rows_of_calls) {
  hvd::IdleBackoff backoff(7);
  CHECK(!backoff.update(7, 0));
  uint32_t visits = 7;
  for (long microseconds : {500, 1000, 2000, 4000, 4000}) {
    CHECK(backoff.update(++visits, 0));
    CHECK(backoff.pause().tv_nsec == microseconds * 1000);
  }
  CHECK(!backoff.update(visits, 0));
  CHECK(backoff.update(visits + 1, 0));
  CHECK(backoff.pause().tv_nsec == 500'000);
}

TEST(background_threads_keep_away_for_longer_where_they_wake_in_vain) {
  hvd::IdleBackoff backoff(0);
  auto wake_in_vain = [&] {
    for (int i = 0; i < 4; ++i) backoff.woken(false);
  };
  for (int i = 0; i < 4; ++i) {
    CHECK(backoff.update(1, 0) == (i == 0));
    CHECK(backoff.pause().tv_nsec == 500'000);
    backoff.woken(false);
  }
  CHECK(backoff.update(2, 0) && backoff.pause().tv_nsec == 16'000'000);
  CHECK(!backoff.update(2, 0));
  backoff.woken(true);
  CHECK(backoff.update(3, 0) && backoff.pause().tv_nsec == 500'000);
  CHECK(!backoff.update(3, 0));
  wake_in_vain();
  CHECK(backoff.update(4, 1) && backoff.pause().tv_nsec == 500'000);  // an operation was left alone
}

TEST(many_cycles_of_changing_size) {
  for (int cycle = 0; cycle < 30; ++cycle)
    ThreadWorld(1 + cycle % 4).run([](Rank& rank) {
      std::vector<float> data = values(rank.rank, 10);
      CHECK(rank.allreduce("x", data) == HVD_OK);
      check_sum(data, rank.size);
    });
}

TEST(fusion_does_not_change_bits) {
  std::vector<std::vector<float>> results;
  for (int transport : kTransports)
    for (int64_t threshold : {int64_t{0}, int64_t{100000}, int64_t{128} << 20}) {
      WorldOptions options;
      options.transport = transport;
      options.knobs.fusion_threshold = threshold;
      std::vector<float> result;
      ThreadWorld(3, options).run([&](Rank& rank) {
        std::vector<std::vector<float>> data(40);
        std::vector<hvd_handle> handles;
        for (size_t i = 0; i < data.size(); ++i) {
          std::mt19937 random(static_cast<unsigned>(i * 10) + static_cast<unsigned>(rank.rank));
          std::uniform_real_distribution<float> uniform(-1, 1);
          data[i].resize(100 + i * 997);
          for (float& value : data[i]) value = uniform(random);
          handles.push_back(rank.allreduce_async("f" + std::to_string(i), data[i], HVD_AVERAGE));
        }
        for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
        if (rank.rank == 1)
          for (const auto& tensor : data) result.insert(result.end(), tensor.begin(), tensor.end());
      });
      results.push_back(std::move(result));
    }
  for (const auto& result : results) CHECK(result == results.front());
}

TEST(adasum_of_parallel_and_orthogonal_vectors) {
  for (int transport : kTransports) {
    WorldOptions options;
    options.transport = transport;
    ThreadWorld(4, options).run([](Rank& rank) {
      std::vector<float> same(1000, 2.0f);
      CHECK(rank.allreduce("same", same, HVD_ADASUM) == HVD_OK);
      for (float value : same) CHECK(value == 2.0f);
      std::vector<float> own(4, 0.0f);
      own[static_cast<size_t>(rank.rank)] = 3.0f;
      CHECK(rank.allreduce("own", own, HVD_ADASUM) == HVD_OK);
      for (float value : own) CHECK(value == 3.0f);
    });
  }
}

// All threads, the engines' included, have the odd mode. Also what is computed outside of the kernels counts:
// the factor of an average (0.7 / 3), the weights of Adasum.
TEST(floating_point_modes_do_not_change_bits) {
  constexpr size_t kCount = 1000;
  const auto results_of = [](int size, int op, double postscale) {
    std::vector<double> result;
    ThreadWorld(size).run([&](Rank& rank) {
      const uint64_t mode = float_modes::get();
      std::mt19937_64 random(static_cast<unsigned>(rank.rank));
      std::vector<double> data(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        // Half of them subnormal, the others between 1 and 2, with either sign.
        const uint64_t bits = (random() & 0x800fffffffffffff) | (i % 2 ? 0x3ff0000000000000 : 0);
        std::memcpy(&data[i], &bits, sizeof bits);
      }
      CHECK(rank.finish(rank.reduce_async(HVD_ALLREDUCE, "x", HVD_FLOAT64, data.data(), data.data(), kCount,
                                          op, 1.0, postscale)) == HVD_OK);
      CHECK(float_modes::get() == mode);
      if (rank.rank == 1) result = data;
    });
    return result;
  };
  const auto all_results = [&] {
    return std::vector<std::vector<double>>{results_of(2, HVD_SUM, 1.0), results_of(3, HVD_AVERAGE, 0.7),
                                            results_of(4, HVD_ADASUM, 1.0)};
  };
  const auto expected = all_results();
  for (uint64_t mode : float_modes::kOdd) {
    if (mode == float_modes::kTrapping) continue;  // the engine may compute with times as it likes
    const float_modes::Odd odd(mode);
    const auto results = all_results();
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK(std::memcmp(results[i].data(), expected[i].data(), kCount * sizeof(double)) == 0);
  }
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
