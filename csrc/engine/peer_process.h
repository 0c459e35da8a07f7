// A peer process as the operating system sees it: is it alive, and if not, how did it end?
#pragma once

#include <string>

#include "base/not_copied.h"
#include "hvd.h"

namespace hvd {

class PeerProcess : NotCopied {
 public:
  PeerProcess(int rank, const hvd_peer& info);
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;

  int rank() const { return rank_; }
  // "rank 2 (host a, pid 123)"
  std::string name() const;
  // A descriptor that becomes readable when the process ends, or -1 if it can't be watched from here.
  int pidfd() const { return pidfd_; }
  // Waits up to `milliseconds` for the process to end and tells how: "was killed by signal 9 (Killed)",
  // "exited with code 1", or `otherwise` if it lives on or can't be seen.
  std::string describe_end(int milliseconds, const std::string& otherwise) const;
  // Whether its process can be seen from here, and has neither ended nor been stopped.
  bool runs() const;
  // " (its process is stopped)" or the like for a peer that is silent; empty if nothing is known.
  std::string describe_state() const;

 private:
  char state() const;  // as in /proc; 0 if it can't be seen

  int rank_;
  std::string host_;
  int pid_;
  int pidfd_ = -1;
};

}  // namespace hvd
