// The last operations of this rank, and the one that it runs: what it has to say when it stands still or
// fails.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/not_copied.h"
#include "base/status.h"
#include "wire/messages.h"

namespace hvd {

// What is written to a file in memory, for whoever reads it when this process is gone:
// horovod/runner/agent/recent.py.
struct KeptOperation {
  uint64_t begin, end, bytes;  // end 0: it was running
  uint32_t tensors, length;    // of the name, which is cut
  char name[96];
};
static_assert(sizeof(KeptOperation) == 128, "as recent.py reads it");

class RecentOperations : NotCopied {
 public:
  RecentOperations() = default;
  ~RecentOperations();

  // From here on also in this file, which stays the caller's and is long enough. Once.
  Status keep_in(int fd);

  // Times are those of now_ns(). An operation ends when those who waited for it have been told. Whoever asks
  // may have taken the time before something that another thread has added meanwhile.
  void begin(std::shared_ptr<const wire::Agreement> first, uint64_t tensors, uint64_t bytes, uint64_t now);
  void end(uint64_t now);

  struct Latest {
    std::string name;      // of its first tensor; empty if there was none yet
    uint64_t running = 0;  // for so many nanoseconds; 0: it has ended
    uint64_t idle = 0;     // for so many nanoseconds since its end, or since the start if there was none
  };
  Latest latest(uint64_t now) const;
  // The last `count` in words, the latest first: "allreduce.x (4 bytes, 1.2 s ago)".
  std::string text(size_t count, uint64_t now) const;

 private:
  struct Entry {
    std::shared_ptr<const wire::Agreement> first;
    uint64_t tensors = 0, bytes = 0, begin = 0, end = 0;
  };
  static constexpr size_t kKept = 64;
  struct Kept {
    uint64_t count;  // of all that were ever begun; stored after the entry
    char rest[120];
    KeptOperation entries[kKept];
  };
  void keep(const Entry& entry);

  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_;
  uint64_t count_ = 0;
  Kept* kept_ = nullptr;
};

}  // namespace hvd
