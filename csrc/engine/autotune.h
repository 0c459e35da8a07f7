// Rank 0's search for parameters: what steps are, what the Tuner says of them, and reports of it. The
// coordinator asks it, under its lock, and tells all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/tuning.h"
#include "engine/tuner.h"
#include "wire/messages.h"

namespace hvd {

class Autotune {
 public:
  struct Options {
    Tuner::Options tuner;
    unsigned parts = 0;              // of the transport, as a sum of TunedPart
    bool keep_fusion = false;        // somebody has chosen the threshold
    std::vector<int64_t> suggested;  // [tunable], 0: nothing; empty: nothing at all
    bool shuffle = false;            // for tests: another choice for every operation
  };
  using Report = std::function<void(const std::string& json)>;

  Autotune(const Options& options, Report report);

  // Before an operation of these items is released, resp. when the application has ended a step. True if
  // other choices() count from here on.
  bool released(const std::vector<const wire::Request*>& items, int64_t bytes, uint64_t now_ns);
  bool marked(uint64_t now_ns);

  const Choices& choices() const { return choices_; }
  // Nothing more will change.
  bool finished() const { return finished_; }

 private:
  // After so many in a row without a name that was there before it says that it has given up. It goes on if
  // one comes back after all, since a first step may be that long; not after so many names.
  static constexpr int kOperations = 200;
  static constexpr size_t kNames = 4096;

  bool step(uint64_t now_ns);
  bool find_anchor(const wire::Request& request);
  Choices at(const Tuner::Point& point) const;
  std::string values(const Choices& choices, bool changed_only = false) const;
  void tell(const Tuner::Sample& sample);
  void tell_end();
  void tell_unknown();

  const Options options_;
  const Report report_;
  std::vector<size_t> tuned_;  // indices of kTunables
  Tuner tuner_;
  Choices choices_;
  bool finished_ = false;
  size_t told_ = 0;  // samples

  // A step ends when the application says so, or when the operation of this name comes again.
  std::string anchor_;
  bool by_marks_ = false;
  int marks_ = 0;
  std::unordered_map<std::string, int> seen_;
  int unknown_ = 0;  // operations in a row without a name that was there before
  bool told_up_ = false;
  uint64_t last_ns_ = 0;
  int64_t bytes_ = 0, steps_ = 0;  // of what counts as steps now
  double bytes_per_step_ = 0;
  std::mt19937 random_;
};

// The choices in force when nothing is tuned.
Choices standard_choices();
// False if there are no such choices.
bool take_choices(const std::vector<uint8_t>& choices, Tuning* tuning);

}  // namespace hvd
