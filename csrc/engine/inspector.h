// Rank 0's eye on the job: what stands still for too long, which rank is slow, and where its threads are. A
// thread of its own, so that writing about it holds up neither the coordinator nor the watch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/log.h"
#include "engine/metrics.h"
#include "engine/notices.h"
#include "engine/stalls.h"
#include "wire/messages.h"

namespace hvd {

// What rank 0 has heard of a rank.
struct Summary {
  wire::Progress progress;
  std::chrono::steady_clock::time_point heard{};  // none: never
  Negotiation::Late late;
  bool waited_for = false;  // for so long that it was reported
};

// A rank that was the last one in more than 80 % of the operations, and cost more than a tenth of the time.
struct SlowRank {
  int rank = -1;  // none
  double share = 0, seconds = 0;
};
// What ranks had cost before and `period` seconds later.
SlowRank find_slow_rank(const std::vector<Negotiation::Late>& before,
                        const std::vector<Negotiation::Late>& now, double period);

class Inspector {
 public:
  using Clock = std::chrono::steady_clock;
  struct Sources {
    // All that waits for some ranks, the oldest first, if the oldest waits for at least `limit` seconds.
    std::function<std::vector<Negotiation::Stalled>(double limit)> waiting;
    // Whether the job is being shut down, so that nothing waits although nothing goes on.
    std::function<bool()> closing;
    std::function<std::vector<Negotiation::Late>()> late;
    std::function<wire::Progress()> own_progress;
    // Asks a rank for its stacks; the answer is a call of stacks().
    std::function<void(int rank, uint32_t number, const std::string& reason)> ask;
  };

  // `minute`: how often it looks back at what was slow; shorter for tests.
  Inspector(const hvd_knobs& knobs, std::vector<PeerName> peers, Sources sources, const Log& log,
            Metrics* metrics, Notices* notices, AbortSignal* abort,
            std::chrono::seconds minute = std::chrono::seconds(60));
  ~Inspector() { stop(); }
  // When all that the sources need is there.
  void start();
  void stop();

  // What ranks tell; from any thread.
  void progress(int rank, const wire::Progress& progress);
  void stacks(int rank, uint32_t number, int how, const std::string& text);

  // Asks for the stacks of a rank, or of all (-1), for whoever takes the notices. Returns the number that
  // the answers have; 0 if there is no such rank.
  uint32_t ask_stacks(int rank, const std::string& reason);
  std::vector<Summary> summaries();

 private:
  struct Stack {
    int how = 0;
    std::string text;
  };
  // A report that waits for stacks.
  struct Pending {
    Stalls::Report report;
    uint32_t number = 0;
    Clock::time_point deadline;
    std::map<int, Stack> stacks;
    std::string stop_reason;  // not empty: the job ends then
    int culprit = -1;         // and this rank is to blame
  };

  void run();
  void look();
  void tell_finished_reports();
  void tell(const Pending& pending);
  void look_back();
  void check_slow_rank();
  void check_evictions();
  std::vector<RankState> states();
  std::string stack_lines(const std::map<int, Stack>& stacks) const;

  const hvd_knobs knobs_;
  const std::vector<PeerName> peers_;
  const Sources sources_;
  const Log& log_;
  Metrics* metrics_;
  Notices* notices_;
  AbortSignal* abort_;
  const std::chrono::seconds minute_;

  // The thread's.
  Stalls stalls_;
  Clock::time_point next_minute_;
  uint64_t evicted_before_ = 0;
  bool told_evictions_ = false;
  std::vector<Negotiation::Late> late_before_;
  std::vector<uint8_t> told_slow_;  // [rank]
  bool stopping_job_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  uint32_t last_number_ = 0;
  std::set<uint32_t> requested_;  // numbers of ask_stacks()
  std::vector<Summary> board_;
  std::vector<Pending> pending_;
  std::thread thread_;
};

}  // namespace hvd
