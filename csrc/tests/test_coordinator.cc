// Rank 0's coordinator with ranks that the test plays.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_signal.h"
#include "base/log.h"
#include "check.h"
#include "engine/coordinator.h"
#include "engine/recorder.h"
#include "test_knobs.h"
#include "wire/messages.h"

namespace {

using hvd::wire::Channel;
using hvd::wire::MessageType;

// A coordinator whose sockets take a few kilobytes at once.
class Job {
 public:
  explicit Job(int size)
      : recorder_({0, size, 0, getpid(), "shm", std::vector<std::string>(static_cast<size_t>(size), "here")},
                  0, log_) {
    std::vector<Channel> ranks;
    for (int rank = 0; rank < size; ++rank) {
      int pair[2];
      CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
      constexpr int kSmall = 4096;
      CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &kSmall, sizeof kSmall) == 0);
      ranks.emplace_back(pair[0]);
      ranks_.emplace_back(pair[1]);
    }
    coordinator_ =
        std::make_unique<hvd::Coordinator>(size, hvd::branches_of(0, std::vector<int>(ranks_.size(), 0)),
                                           std::move(ranks), test_knobs(), &recorder_, &abort_, log_);
  }

  hvd::Coordinator& coordinator() { return *coordinator_; }
  void is_ready(size_t rank, const std::string& name) {
    hvd::wire::Request request;
    request.kind = HVD_BARRIER;
    request.name = name;
    CHECK(ranks_[rank].send(hvd::wire::encode_request(request)) && !ranks_[rank].has_unsent());
  }
  // Every rank sends `rows` rows to each.
  void all_exchange(const std::string& name, int32_t rows) {
    hvd::wire::Request request;
    request.kind = HVD_ALLTOALL;
    request.name = name;
    request.numbers.assign(ranks_.size(), rows);
    request.tensors = {{hvd::DataType::kFloat32, {rows * static_cast<int64_t>(ranks_.size())}}};
    for (Channel& rank : ranks_) {
      const std::vector<uint8_t> frame = hvd::wire::encode_request(request);
      bytes_ += frame.size();
      CHECK(rank.send(frame) && !rank.has_unsent());
    }
  }
  // Of the frames from and to all ranks.
  size_t bytes() const { return bytes_; }
  // Whether it is told to run something within some seconds.
  bool is_released(size_t rank) {
    for (;;) {
      const uint8_t* data = nullptr;
      size_t size = 0;
      const Channel::Received received = ranks_[rank].receive(&data, &size);
      hvd::wire::Message message;
      if (received == Channel::Received::kFrame) {
        bytes_ += size;
        CHECK(hvd::wire::decode(data, size, &message));
        if (message.type == MessageType::kOperation) return true;
        continue;
      }
      CHECK(received == Channel::Received::kNothing);
      pollfd readable{ranks_[rank].fd(), POLLIN, 0};
      constexpr int kMilliseconds = 10'000;
      if (poll(&readable, 1, kMilliseconds) != 1) return false;
    }
  }

 private:
  hvd::Log log_{HVD_LOG_FATAL, true, 0};
  hvd::AbortSignal abort_;
  hvd::Recorder recorder_;
  std::vector<Channel> ranks_;
  size_t bytes_ = 0;
  std::unique_ptr<hvd::Coordinator> coordinator_;
};

}  // namespace

// A thread that waits for an operation does the coordinator's work, and leaves when its own has ended: what
// the sockets did not take is then the coordinator thread's to send, although it may have gone to sleep
// before there was any.
TEST(what_a_visitor_leaves_unsent_is_sent) {
  Job job(2);
  for (int round = 0; round < 20; ++round) {
    const std::string name = std::to_string(round) + std::string(50'000, 'x');
    job.is_ready(0, name);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // its thread listens again and sleeps
    job.is_ready(1, name);
    job.coordinator().serve();  // most often before its thread is awake
    for (size_t rank : {0, 1}) CHECK(job.is_released(rank));
    job.coordinator().operation_done();
  }
}

// Each rank is told what it gets itself: n numbers, and not n^2.
TEST(changed_splits_of_an_alltoall_take_n_squared_bytes) {
  auto bytes_for = [](int ranks, int operations) {
    Job job(ranks);
    for (int i = 0; i < operations; ++i) {
      job.all_exchange("exchange", i + 1);
      for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) CHECK(job.is_released(rank));
      job.coordinator().operation_done();
    }
    return static_cast<double>(job.bytes()) / operations;
  };
  const double bytes = bytes_for(64, 1000);
  std::printf("  %.0f bytes at rank 0 for each of 1,000 changed alltoalls of 64 ranks\n", bytes);
  CHECK(bytes < 64 * (16 * 64 + 300));
  CHECK(bytes < 4 * bytes_for(32, 20));
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
