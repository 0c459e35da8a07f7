// What an allreduce gives while ranks have joined: the reduction of the others' values, as if there were no
// more ranks; only Average still divides by the number of all. And how ranks join and come back.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/integer_types.h"
#include "check.h"
#include "engine/executor.h"
#include "every_world.h"
#include "kernels/kernels.h"
#include "thread_world.h"

using namespace hvd;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kCount = 333;
constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum,     ReduceOp::kMin,
                             ReduceOp::kMax,     ReduceOp::kProduct, ReduceOp::kAdasum};

bool defined(DataType type, ReduceOp op) {
  if (op == ReduceOp::kAdasum) return is_floating(type);
  return !is_complex(type) || op == ReduceOp::kAverage || op == ReduceOp::kSum;
}

// Random bits: negative, large, both zeros. No 16-bit NaN or infinity, as sums make NaNs of them, whose bits
// may differ; those of float and double are too rare to meet.
Bytes values_of(int rank, DataType type) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) * 100 + static_cast<uint64_t>(type));
  Bytes bytes(kCount * size_of(type));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  if (type == DataType::kBool)
    for (uint8_t& byte : bytes) byte &= 1;
  if (type == DataType::kFloat16 || type == DataType::kBfloat16)
    for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] &= 0xbf;
  const size_t scalar = is_complex(type) ? size_of(type) / 2 : size_of(type);
  for (size_t i = 0; i < 4 * scalar; ++i) bytes[i] = 0;
  // Some zeros, all ranks' alike: of the signs + + - -.
  if (is_floating(type) || is_complex(type)) bytes[3 * scalar - 1] = bytes[4 * scalar - 1] = 0x80;
  if (type == DataType::kFloat32 || type == DataType::kComplex64 || type == DataType::kFloat64 ||
      type == DataType::kComplex128)
    for (size_t i = 5 * scalar - 1; i < bytes.size(); i += scalar) bytes[i] &= 0xbf;
  return bytes;
}

template <class T>
Bytes average_of(const std::vector<Bytes>& inputs, int size) {
  Bytes result(inputs[0].size());
  for (size_t i = 0; i < result.size(); i += sizeof(T)) {
    __int128 sum = 0;
    for (const Bytes& input : inputs) {
      T x;
      std::memcpy(&x, &input[i], sizeof x);
      sum += x;
    }
    const T average = static_cast<T>(sum / size);
    std::memcpy(&result[i], &average, sizeof average);
  }
  return result;
}

Bytes average_of(DataType type, const std::vector<Bytes>& inputs, int size) {
  Bytes result(inputs[0].size(), 0);
  const bool integers =
      with_integer_type(type, [&](auto zero) { result = average_of<decltype(zero)>(inputs, size); });
  CHECK(integers || type == DataType::kBool);  // a rank that has nothing has no truth
  return result;
}

Bytes combined(const Reduction& reduction, const std::vector<Bytes>& inputs) {
  std::vector<const void*> sources;
  for (const Bytes& input : inputs) sources.push_back(input.data());
  Bytes result(inputs[0].size());
  kernels::reduce(reduction, result.data(), nullptr, sources.data(), static_cast<int>(sources.size()),
                  kCount);
  return result;
}

// Of the inputs of some of `size` ranks, which are on these hosts; -1: there is no such level.
Bytes reduced(DataType type, ReduceOp op, double prescale, std::vector<Bytes> inputs,
              const std::vector<int>& hosts, int size) {
  for (Bytes& input : inputs)
    if (prescale != 1.0) kernels::scale(type, input.data(), input.data(), kCount, prescale);
  const bool average = op == ReduceOp::kAverage;
  if (average && !is_floating(type) && !is_complex(type)) return average_of(type, inputs, size);
  std::map<int, std::vector<Bytes>> by_host;
  for (size_t i = 0; i < inputs.size(); ++i) by_host[hosts[i]].push_back(inputs[i]);
  const ReduceOp applied = average ? ReduceOp::kSum : op;
  const double factor = average ? 1.0 / size : 1.0;
  if (hosts[0] < 0) return combined({type, applied, factor}, inputs);
  std::vector<Bytes> results;
  for (const auto& host : by_host) results.push_back(combined({type, applied, 1.0}, host.second));
  return combined({type, applied, factor}, results);
}

struct Case {
  DataType type;
  ReduceOp op;
  double prescale;
  Bytes data;
  hvd_handle handle;
};

std::vector<Case> cases_of(int rank, bool adasum) {
  std::vector<Case> cases;
  for (int code = 0; code < kDataTypes; ++code)
    for (ReduceOp op : kOps)
      for (double prescale : {1.0, 0.5}) {
        const auto type = static_cast<DataType>(code);
        if (!defined(type, op) || (op == ReduceOp::kAdasum) != adasum) continue;
        cases.push_back({type, op, prescale, values_of(rank, type), 0});
      }
  return cases;
}

// All at once, so that some run fused.
void reduce_all(Rank& rank, std::vector<Case>& cases) {
  for (size_t i = 0; i < cases.size(); ++i)
    cases[i].handle = rank.reduce_async(
        HVD_ALLREDUCE, "case " + std::to_string(i), static_cast<int>(cases[i].type), cases[i].data.data(),
        cases[i].data.data(), kCount, static_cast<int>(cases[i].op), cases[i].prescale);
  for (Case& each : cases) CHECK(rank.finish(each.handle) == HVD_OK);
}

void in_worlds(const std::vector<int32_t>& hosts, const std::function<void(Rank&, bool hierarchical)>& body) {
  for (int transport : {HVD_TRANSPORT_SHM, HVD_TRANSPORT_TCP, HVD_TRANSPORT_HIERARCHICAL}) {
    WorldOptions options;
    options.transport = transport;
    options.hosts = hosts;
    ThreadWorld(static_cast<int>(hosts.size()), options).run([&](Rank& rank) {
      body(rank, transport == HVD_TRANSPORT_HIERARCHICAL);
    });
  }
}

void check_with_joined(const std::vector<int32_t>& hosts, const std::vector<int>& active) {
  in_worlds(hosts, [&](Rank& rank, bool hierarchical) {
    if (std::count(active.begin(), active.end(), rank.rank) > 0) {
      std::vector<Case> cases = cases_of(rank.rank, false);
      reduce_all(rank, cases);
      for (const Case& each : cases) {
        std::vector<Bytes> inputs;
        std::vector<int> places;
        for (int r : active) {
          inputs.push_back(values_of(r, each.type));
          places.push_back(hierarchical ? hosts[static_cast<size_t>(r)] : -1);
        }
        if (each.data != reduced(each.type, each.op, each.prescale, inputs, places, rank.size)) {
          std::fprintf(stderr, "%s op %d prescale %g\n", name_of(each.type), static_cast<int>(each.op),
                       each.prescale);
          CHECK(!"the reduction of those that have not joined");
        }
      }
    }
    CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
  });
}

}  // namespace

TEST(joined_ranks_change_nothing) {
  check_with_joined({0, 0, 1}, {0, 2});
  check_with_joined({0, 0, 1}, {1, 2});
  check_with_joined({0, 0, 1}, {0, 1});  // a whole host has joined
  check_with_joined({0, 1, 1, 1}, {2});
}

TEST(joined_ranks_change_nothing_in_adasum) {
  std::vector<Case> expected;
  ThreadWorld(2).run([&](Rank& rank) {
    std::vector<Case> cases = cases_of(rank.rank, true);
    reduce_all(rank, cases);
    if (rank.rank == 0) expected = cases;
  });
  in_worlds({0, 0, 1, 1}, [&](Rank& rank, bool) {
    if (rank.rank < 2) {
      std::vector<Case> cases = cases_of(rank.rank, true);
      reduce_all(rank, cases);
      for (size_t i = 0; i < cases.size(); ++i) CHECK(cases[i].data == expected[i].data);
    }
    CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
  });
}

TEST(groups_of_mixed_types_while_a_rank_has_joined) {
  ThreadWorld(3).run([](Rank& rank) {
    if (rank.rank != 1) {
      int64_t two = 2;
      float floats[2] = {-3, static_cast<float>(rank.rank)};
      int16_t shorts[2] = {-5, static_cast<int16_t>(rank.rank)};
      uint8_t truths[2] = {1, 0};
      hvd_tensor tensors[] = {{floats, floats, &two, 1, HVD_FLOAT32, HVD_CPU, 0},
                              {shorts, shorts, &two, 1, HVD_INT16, HVD_CPU, 0},
                              {truths, truths, &two, 1, HVD_BOOL, HVD_CPU, 0}};
      hvd_request request = Rank::request(HVD_ALLREDUCE, "group");
      request.reduce_op = HVD_MIN;
      request.prescale = 2.0;
      request.tensor_count = 3;
      request.tensors = tensors;
      CHECK(rank.finish(rank.submit(request)) == HVD_OK);
      CHECK(floats[0] == -6 && floats[1] == 0);
      CHECK(shorts[0] == -10 && shorts[1] == 0);
      CHECK(truths[0] == 1 && truths[1] == 0);
    }
    CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
  });
}

// The coordinator lets neither happen; if it did, memory must not be what suffers.
TEST(an_operation_without_a_fitting_task_is_an_error) {
  auto transport = make_single_transport();
  Executor executor(transport.get(), 0, 1);
  for (int kind : {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER, HVD_ADD_PROCESS_SET}) {
    auto agreement = std::make_shared<wire::Agreement>();
    agreement->common.kind = kind;
    agreement->common.name = "nobody's";
    agreement->common.tensors = {{DataType::kFloat32, {2}}};
    agreement->first_dims = {{2}};
    agreement->columns = {{0, {2}}};
    const Status status = executor.run({{agreement, nullptr}});
    CHECK(!status.ok() && status.text().find("nobody's") != std::string::npos);
  }
  auto agreement = std::make_shared<wire::Agreement>();
  agreement->common.kind = HVD_ALLREDUCE;
  agreement->common.tensors = {{DataType::kFloat32, {1000}}};
  float one = 1;
  int64_t length = 1;
  hvd_tensor tensor{&one, &one, &length, 1, HVD_FLOAT32, HVD_CPU, 0};
  hvd_request request = Rank::request(HVD_ALLREDUCE, "late");
  request.tensor_count = 1;
  request.tensors = &tensor;
  const Status status = executor.run({{agreement, std::make_shared<Task>(request)}});
  CHECK(!status.ok() && status.text().find("after this rank had joined") != std::string::npos);
}

TEST(join_lets_the_others_go_on) {
  in_every_world([](Rank& rank) {
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step <= rank.rank; ++step) {
        std::vector<float> data(1000, 1.0f);
        CHECK(rank.allreduce("step" + std::to_string(step), data) == HVD_OK);
        // Ranks below `step` have joined or are about to; exactly those with rank >= step submit this name.
        for (float value : data) CHECK(value == static_cast<float>(rank.size - step));
      }
      int64_t last = -1;
      CHECK(rank.simple(HVD_JOIN, "join.noname", &last) == HVD_OK);
      CHECK(last == rank.size - 1);
    }
  });
}

TEST(join_loses_nothing_that_is_pending) {
  in_every_world([](Rank& rank) {
    for (int round = 0; round < 5; ++round) {
      constexpr size_t kTensors = 10;
      std::vector<std::vector<float>> data(kTensors);
      std::vector<hvd_handle> handles;
      for (size_t i = 0; i < kTensors && rank.rank == 0; ++i) {
        data[i] = values(3, 5);
        handles.push_back(rank.allreduce_async("only on 0, " + std::to_string(i), data[i]));
      }
      CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
      for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
      for (size_t i = 0; i < handles.size(); ++i) CHECK(data[i] == values(3, 5));
    }
  });
}

TEST(a_rank_that_has_joined_submits_nothing_until_it_is_back) {
  std::atomic<bool> refused{false};
  ThreadWorld(2).run([&](Rank& rank) {
    std::vector<float> data = values(rank.rank, 10);
    std::vector<float> other = data;
    if (rank.rank == 0) {
      hvd_handle join = rank.submit(Rank::request(HVD_JOIN, "join.noname"));
      CHECK(rank.allreduce_async("early", other) == HVD_INVALID_ARGUMENT);
      const std::string text = hvd_last_error();
      CHECK(text.find("'early'") != std::string::npos &&
            text.find("join() has returned") != std::string::npos);
      refused = true;
      CHECK(rank.finish(join) == HVD_OK);
    } else {
      while (!refused) std::this_thread::yield();
      CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
    }
    CHECK(rank.allreduce("early", data) == HVD_OK);
    check_sum(data, 2);
  });
}

// Whichever of two threads is faster: what is accepted before the join is announced before it, too.
TEST(another_thread_submits_while_a_rank_joins) {
  std::atomic<int> submitted{0}, ended{0};
  ThreadWorld(2).run([&](Rank& rank) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::vector<float>> data(100, std::vector<float>(3, 1.0f));
      std::vector<hvd_handle> handles;
      std::thread other([&] {
        for (size_t i = 0; i < data.size() && rank.rank == 0; ++i) {
          hvd_handle handle = rank.allreduce_async("t" + std::to_string(i), data[i]);
          if (handle == HVD_INVALID_ARGUMENT) break;
          handles.push_back(handle);
          submitted++;
        }
        if (rank.rank == 0) ended++;
      });
      if (rank.rank == 0) {
        for (int before = submitted; submitted < before + 5 && ended <= round;) std::this_thread::yield();
      } else {
        while (ended <= round) std::this_thread::yield();
      }
      CHECK(rank.simple(HVD_JOIN, "join.noname") == HVD_OK);
      other.join();
      for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
    }
  });
}

int main(int argc, char** argv) {
  alarm(120);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
