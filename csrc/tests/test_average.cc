// Averages of integers through the engine, on every transport: exact, although the sums do not fit in the
// type.
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "check.h"
#include "thread_world.h"

namespace {

void in_worlds(const std::function<void(Rank&)>& body) {
  for (const std::vector<int32_t>& hosts : {std::vector<int32_t>{0}, {0, 0}, {0, 0, 1}, {0, 1, 1, 0, 1}})
    for (int transport : {HVD_TRANSPORT_SHM, HVD_TRANSPORT_TCP, HVD_TRANSPORT_HIERARCHICAL}) {
      if (transport == HVD_TRANSPORT_HIERARCHICAL && hosts.back() == 0) continue;
      WorldOptions options;
      options.transport = transport;
      options.hosts = hosts;
      ThreadWorld(static_cast<int>(hosts.size()), options).run(body);
    }
}

// The first elements are extreme and the same on all ranks, then small, then of the whole range.
template <class T>
std::vector<T> values_of(int rank, size_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t draw = random();
    values[i] = i == 0   ? std::numeric_limits<T>::max()
                : i == 1 ? std::numeric_limits<T>::min()
                : i < 50 ? static_cast<T>(draw % 7 - 3)
                         : static_cast<T>(draw);
  }
  return values;
}

template <class T>
std::vector<T> average_of(int size, size_t count, double factor = 1.0) {
  std::vector<__int128> sums(count);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> values = values_of<T>(rank, count);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  std::vector<T> averages;
  for (__int128 sum : sums)
    averages.push_back(factor == 1.0 ? static_cast<T>(sum / size)
                                     : static_cast<T>(static_cast<double>(sum) * factor / size));
  return averages;
}

template <class Body>
void for_each_type(Body body) {
  body(uint8_t{}, HVD_UINT8);
  body(int8_t{}, HVD_INT8);
  body(uint16_t{}, HVD_UINT16);
  body(int16_t{}, HVD_INT16);
  body(int32_t{}, HVD_INT32);
  body(int64_t{}, HVD_INT64);
}

// This rank's rows of `all`.
template <class T>
std::vector<T> share_of(const std::vector<T>& all, const Rank& rank) {
  const auto size = static_cast<size_t>(rank.size), self = static_cast<size_t>(rank.rank);
  const size_t each = all.size() / size, larger = all.size() % size;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(self * each + std::min(self, larger));
  return {begin, begin + static_cast<std::ptrdiff_t>(each + (self < larger ? 1 : 0))};
}

template <class T>
void check_average(Rank& rank, int dtype, size_t count, double postscale = 1.0) {
  const std::vector<T> input = values_of<T>(rank.rank, count);
  const std::vector<T> expected = average_of<T>(rank.size, count, postscale);
  const std::string name = std::to_string(dtype) + "." + std::to_string(count);
  const auto rows = static_cast<int64_t>(count);
  std::vector<T> result(count), in_place = input;
  const hvd_handle handles[] = {
      rank.reduce_async(HVD_ALLREDUCE, "out " + name, dtype, input.data(), result.data(), rows, HVD_AVERAGE,
                        1.0, postscale),
      rank.reduce_async(HVD_ALLREDUCE, "in " + name, dtype, in_place.data(), in_place.data(), rows,
                        HVD_AVERAGE, 1.0, postscale),
  };
  for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
  CHECK(result == expected && in_place == expected);
  CHECK(input == values_of<T>(rank.rank, count));

  const std::vector<T> expected_share = share_of(expected, rank);
  std::vector<T> share(expected_share.size());
  CHECK(rank.finish(rank.reduce_async(HVD_REDUCESCATTER, "scatter " + name, dtype, input.data(), share.data(),
                                      rows, HVD_AVERAGE, 1.0, postscale)) == HVD_OK);
  CHECK(share == expected_share);
}

}  // namespace

TEST(averages_of_every_integer_type) {
  in_worlds([](Rank& rank) {
    for_each_type([&](auto zero, int dtype) {
      for (size_t count : {0, 1, 2, 5, 1021, 40000}) check_average<decltype(zero)>(rank, dtype, count);
      check_average<decltype(zero)>(rank, dtype, 1000, 0.3);
    });
  });
}

// More than is widened at a time.
TEST(averages_of_many_integers) {
  WorldOptions options;
  options.transport = HVD_TRANSPORT_HIERARCHICAL;
  options.hosts = {0, 0, 1};
  ThreadWorld(3, options).run([](Rank& rank) {
    check_average<int64_t>(rank, HVD_INT64, (size_t{5} << 17) + 7);
    check_average<uint8_t>(rank, HVD_UINT8, (size_t{9} << 18) + 1);
  });
}

TEST(averages_of_many_tensors_at_once) {
  in_worlds([](Rank& rank) {
    for (int kind : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
      std::vector<std::vector<int32_t>> inputs, results, expected;
      for (size_t count = 0; count < 4000; count += 131) {
        inputs.push_back(values_of<int32_t>(rank.rank, count));
        expected.push_back(average_of<int32_t>(rank.size, count));
        if (kind == HVD_REDUCESCATTER) expected.back() = share_of(expected.back(), rank);
        results.emplace_back(expected.back().size());
      }
      std::vector<hvd_handle> handles;
      for (size_t i = 0; i < inputs.size(); ++i)
        handles.push_back(rank.reduce_async(kind, "tensor " + std::to_string(i), HVD_INT32, inputs[i].data(),
                                            results[i].data(), static_cast<int64_t>(inputs[i].size()),
                                            HVD_AVERAGE));
      for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
      CHECK(results == expected);
    }
  });
}

TEST(averages_in_a_group_of_mixed_types) {
  in_worlds([](Rank& rank) {
    int64_t rows = 101;
    std::vector<uint8_t> bytes = values_of<uint8_t>(rank.rank, 101);
    std::vector<float> floats(101, static_cast<float>(rank.rank));
    std::vector<int64_t> longs = values_of<int64_t>(rank.rank, 101);
    std::vector<uint8_t> truths(101, rank.rank == 0 ? 1 : 2);
    hvd_tensor tensors[] = {{bytes.data(), bytes.data(), &rows, 1, HVD_UINT8, HVD_CPU, 0},
                            {floats.data(), floats.data(), &rows, 1, HVD_FLOAT32, HVD_CPU, 0},
                            {longs.data(), longs.data(), &rows, 1, HVD_INT64, HVD_CPU, 0},
                            {truths.data(), truths.data(), &rows, 1, HVD_BOOL, HVD_CPU, 0}};
    truths[3] = rank.rank == 0;
    truths[4] = 0;
    hvd_request request = Rank::request(HVD_ALLREDUCE, "group");
    request.reduce_op = HVD_AVERAGE;
    request.tensor_count = 4;
    request.tensors = tensors;
    CHECK(rank.finish(rank.submit(request)) == HVD_OK);
    CHECK(bytes == average_of<uint8_t>(rank.size, 101));
    CHECK(longs == average_of<int64_t>(rank.size, 101));
    CHECK(truths[0] == 1 && truths[3] == (rank.size == 1) && truths[4] == 0);
  });
}

TEST(prescale_comes_first_and_in_the_type) {
  ThreadWorld(2).run([](Rank& rank) {
    int8_t data[3] = {-3, 100, 5};
    CHECK(rank.finish(rank.reduce_async(HVD_ALLREDUCE, "x", HVD_INT8, data, data, 3, HVD_AVERAGE, 1.5)) ==
          HVD_OK);
    CHECK(data[0] == -4 && data[1] == 127 && data[2] == 7);
  });
}

int main(int argc, char** argv) {
  alarm(240);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
