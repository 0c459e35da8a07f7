// A rank with others below it in the tree of control connections: it stands between them and the coordinator.
// What is passed on, and when, is Combining's to say.
#pragma once

#include <string>
#include <vector>

#include "engine/branches.h"
#include "engine/combining.h"
#include "engine/hub.h"

namespace hvd {

class Relay : public Hub {
 public:
  // channels[i] leads to branches[i], and the last one, to `above`.
  Relay(int rank, int size, std::vector<Branch> branches, std::vector<wire::Channel> channels, int above,
        AbortSignal* abort);
  ~Relay() override { stop(); }

 private:
  void received(size_t channel, const uint8_t* data, size_t size) override;
  void act() override;
  Clock::time_point due() override;
  void lost(size_t channel) override;
  int rank_at(size_t channel) const override { return ranks_[channel]; }
  bool closed() const override { return closed_; }

  const int rank_;
  const std::vector<int> ranks_;  // [channel]
  Combining combining_;
  Clock::time_point lost_ = Clock::time_point::max();  // when the connection above was
  bool closed_ = false;
};

// What fails if the rank above is gone and nobody says why.
Status lost_above(int rank);
// The watch, which has a connection to it, too, knows better why; so long it is given to say so.
constexpr std::chrono::milliseconds kWatchSpeaksFirst{1000};

}  // namespace hvd
