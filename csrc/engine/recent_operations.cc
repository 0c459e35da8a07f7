#include "engine/recent_operations.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace hvd {

RecentOperations::~RecentOperations() {
  if (kept_ != nullptr) munmap(kept_, sizeof(Kept));
}

Status RecentOperations::keep_in(int fd) {
  struct stat file{};
  if (fstat(fd, &file) != 0 || file.st_size < static_cast<off_t>(sizeof(Kept)))
    return Status::invalid("The file for the last operations is missing or too short");
  void* memory = mmap(nullptr, sizeof(Kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED)
    return Status::unknown("The file for the last operations can't be mapped: " +
                           std::string(std::strerror(errno)));
  std::lock_guard<std::mutex> lock(mutex_);
  if (kept_ != nullptr) munmap(kept_, sizeof(Kept));
  kept_ = static_cast<Kept*>(memory);  // goes on after those of an engine before
  return Status();
}

void RecentOperations::keep(const Entry& entry) {
  const std::string& name = entry.first->common.name;
  KeptOperation& kept = kept_->entries[kept_->count % kKept];
  kept.begin = entry.begin;
  kept.end = 0;
  kept.bytes = entry.bytes;
  kept.tensors = static_cast<uint32_t>(std::min<uint64_t>(entry.tensors, UINT32_MAX));
  kept.length = static_cast<uint32_t>(std::min(name.size(), sizeof kept.name));
  std::memcpy(kept.name, name.data(), kept.length);
  __atomic_store_n(&kept_->count, kept_->count + 1, __ATOMIC_RELEASE);
}

void RecentOperations::begin(std::shared_ptr<const wire::Agreement> first, uint64_t tensors, uint64_t bytes,
                             uint64_t now) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[count_++ % kKept];
  entry.first.swap(first);  // what was there is let go by the caller, after the lock
  entry.tensors = tensors;
  entry.bytes = bytes;
  entry.begin = now;
  entry.end = 0;
  if (kept_ != nullptr) keep(entry);
}

void RecentOperations::end(uint64_t now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count_ == 0) return;
  entries_[(count_ - 1) % kKept].end = now;
  if (kept_ != nullptr && kept_->count > 0) kept_->entries[(kept_->count - 1) % kKept].end = now;
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
