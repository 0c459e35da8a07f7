// Worlds of several sizes and transports, and sums that are easy to check.
#pragma once

#include <functional>
#include <vector>

#include "check.h"
#include "thread_world.h"

inline const std::vector<int> kSizes = {1, 2, 3, 4};
inline const std::vector<int> kTransports = {HVD_TRANSPORT_SHM, HVD_TRANSPORT_TCP};

inline void in_every_world(const std::function<void(Rank&)>& body) {
  for (int transport : kTransports)
    for (int size : kSizes) {
      WorldOptions options;
      options.transport = transport;
      ThreadWorld(size, options).run(body);
    }
}

inline std::vector<float> values(int rank, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>((i % 13) * 3) + static_cast<float>(rank);
  return data;
}

inline float sum_at(size_t i, int size) {
  return static_cast<float>(size * static_cast<int>((i % 13) * 3) + size * (size - 1) / 2);
}

inline void check_sum(const std::vector<float>& data, int size) {
  for (size_t i = 0; i < data.size(); ++i) CHECK(data[i] == sum_at(i, size));
}
