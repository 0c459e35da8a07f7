// A Chrome trace (chrome://tracing, Perfetto) of what the coordinator's rank does: one row per operation name
// with the negotiation, who became ready when, and the run. The file is valid JSON whenever one looks at it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/status.h"

namespace hvd {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { stop(); }

  bool active() const { return active_.load(std::memory_order_relaxed); }
  Status start(const std::string& path, bool mark_cycles);
  void stop();

  void negotiate_begin(const std::string& name, const char* kind);
  void rank_ready(const std::string& name, int rank);
  void negotiate_end(const std::string& name);
  void run_begin(const std::string& name, const char* kind);
  void run_end(const std::string& name, const std::string& dtype, const std::string& shape);
  void cycle();

 private:
  int row(const std::string& name);
  void event(const std::string& name, char phase, const std::string& label, const std::string& arguments);
  void write(const std::string& json);

  std::mutex mutex_;
  std::FILE* file_ = nullptr;
  std::atomic<bool> active_{false};
  bool mark_cycles_ = false;
  bool first_ = true;
  std::chrono::steady_clock::time_point origin_{};
  std::unordered_map<std::string, int> rows_;
  std::unordered_map<std::string, int> negotiating_;
};

}  // namespace hvd
