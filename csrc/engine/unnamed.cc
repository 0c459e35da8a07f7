#include "engine/unnamed.h"

#include <iterator>

namespace hvd {

Status Unnamed::submit(const hvd_request& request, const std::atomic<int64_t>& joins, const Submit& submit) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const int64_t now = joins; now != joins_) {
    joins_ = now;
    counts_.clear();
  }
  int64_t& count = counts_[{request.process_set, request.name}];
  std::string name = std::string(request.name) + ".noname." + std::to_string(count);
  if (joins_ != 0) name += ".joins." + std::to_string(joins_);
  hvd_request named = request;
  named.name = name.c_str();
  named.unnamed = 0;
  Status status = submit(named);
  if (status.ok()) ++count;
  return status;
}

void Unnamed::restart(int process_set) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto entry = counts_.begin(); entry != counts_.end();)
    entry = entry->first.first == process_set ? counts_.erase(entry) : std::next(entry);
}

}  // namespace hvd
