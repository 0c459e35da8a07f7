// Names for operations that have none. Ranks match them by the number of calls of an operation and a process
// set, so the adapters of all frameworks count in one place.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "hvd.h"

namespace hvd {

class Unnamed {
 public:
  using Submit = std::function<Status(const hvd_request& named)>;

  // Calls `submit` with the next name. A refused call does not count: it can be repeated.
  Status submit(const hvd_request& request, const std::atomic<int64_t>& joins, const Submit& submit);

  // A new set may have an old one's number, in which its members have not all counted.
  void restart(int process_set);

 private:
  std::mutex mutex_;  // held while submitting, so that numbers are in the order of the calls
  std::map<std::pair<int, std::string>, int64_t> counts_;
  int64_t joins_ = 0;  // before a join, ranks may have called different numbers of times: count anew after it
};

}  // namespace hvd
