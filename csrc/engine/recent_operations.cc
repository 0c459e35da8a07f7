#include "engine/recent_operations.h"

#include <algorithm>
#include <cstdio>

namespace hvd {

void RecentOperations::begin(std::shared_ptr<const wire::Agreement> first, uint64_t tensors, uint64_t bytes,
                             uint64_t now) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[count_++ % kKept];
  entry.first.swap(first);  // what was there is let go by the caller, after the lock
  entry.tensors = tensors;
  entry.bytes = bytes;
  entry.begin = now;
  entry.end = 0;
}

void RecentOperations::end(uint64_t now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ > 0) entries_[(count_ - 1) % kKept].end = now;
}

RecentOperations::Latest RecentOperations::latest(uint64_t now) const {
  std::lock_guard<std::mutex> lock(mutex_);
  Latest latest;
  if (count_ == 0) return latest;
  const Entry& entry = entries_[(count_ - 1) % kKept];
  latest.name = entry.first->common.name;
  if (entry.end == 0) {
    latest.running = std::max<uint64_t>(now - std::min(now, entry.begin), 1);
  } else {
    latest.idle = now - std::min(now, entry.end);
  }
  return latest;
}

std::string RecentOperations::text(size_t count, uint64_t now) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (uint64_t i = 0; i < std::min<uint64_t>({count, count_, kKept}); ++i) {
    const Entry& entry = entries_[(count_ - 1 - i) % kKept];
    char rest[96];
    const uint64_t since = entry.end == 0 ? entry.begin : entry.end;
    const double seconds = static_cast<double>(now - std::min(now, since)) / 1e9;
    std::snprintf(rest, sizeof rest,
                  entry.end == 0 ? "%s (%llu bytes, running for %.1f s)" : "%s (%llu bytes, %.1f s ago)",
                  entry.tensors > 1 ? " and others" : "", static_cast<unsigned long long>(entry.bytes),
                  seconds);
    text += (text.empty() ? "" : ", ") + entry.first->common.name + rest;
  }
  return text;
}

}  // namespace hvd
