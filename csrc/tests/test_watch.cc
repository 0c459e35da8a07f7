// Who is given up for silence, and who is not although its watch thread says nothing.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/abort_signal.h"
#include "check.h"
#include "engine/watch.h"
#include "wire/messages.h"

namespace {

using Clock = std::chrono::steady_clock;
using hvd::AbortSignal;
using hvd::PeerProcess;
using hvd::Watch;

constexpr double kTimeout = 1.5;
constexpr hvd_peer kElsewhere = {"elsewhere", 1, 0};

// A watch over one peer, which is played by the test and says nothing unless it is told to.
class Watcher {
 public:
  explicit Watcher(const hvd_peer& peer, int control = -1, Watch::Timeouts timeouts = {kTimeout, kTimeout}) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    std::vector<Watch::Watched> watched;
    watched.push_back({PeerProcess(1, peer), hvd::wire::Channel(pair[0]), control});
    other_end_ = hvd::wire::Channel(pair[1]);
    watch_ = std::make_unique<Watch>(0, std::vector<int>{0, 0}, std::move(watched), timeouts, &abort_);
    watch_->start();
  }
  void hears_something() {
    CHECK(other_end_.send(hvd::wire::encode_simple(hvd::wire::MessageType::kHeartbeat)));
  }
  // Whether it gives the peer up within so many seconds.
  bool gives_up(double seconds) {
    pollfd raised{abort_.fd(), POLLIN, 0};
    return poll(&raised, 1, static_cast<int>(seconds * 1000)) == 1;
  }
  std::string reason() const { return abort_.reason().text(); }
  int culprit() const { return abort_.reason().culprit(); }
  bool culprit_is_silent() const { return abort_.reason().silent(); }
  void hears_that(int culprit) {
    CHECK(other_end_.send(hvd::wire::encode_abort(hvd::Status::unknown("it is gone").blame(culprit))));
  }
  void loses_the_peer() { other_end_.close(); }

 private:
  AbortSignal abort_;
  hvd::wire::Channel other_end_;
  std::unique_ptr<Watch> watch_;
};

// Two ends of a TCP connection.
std::pair<int, int> connection() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(connect(near, reinterpret_cast<sockaddr*>(&address), size) == 0);
  const int far = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  CHECK(far >= 0);
  close(listener);
  return {near, far};
}

// A process of this host that does nothing.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // if a check fails
      for (;;) pause();
    }
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  hvd_peer peer() const { return {"here", pid_, 1}; }
  void stop() const { CHECK(kill(pid_, SIGSTOP) == 0); }

 private:
  const pid_t pid_;
};

}  // namespace

TEST(who_is_silent_is_given_up) {
  Watcher watcher(kElsewhere);
  watcher.hears_something();
  const auto begin = Clock::now();
  CHECK(watcher.gives_up(100));
  CHECK(Clock::now() - begin > std::chrono::duration<double>(kTimeout / 2));
  CHECK(watcher.reason().find("rank 1 (host elsewhere, pid 1) has been silent for ") == 0);
  CHECK(watcher.culprit() == 1 && watcher.culprit_is_silent());
}

TEST(who_is_gone_is_the_culprit) {
  Watcher watcher(kElsewhere);
  watcher.loses_the_peer();
  CHECK(watcher.gives_up(100));
  CHECK(watcher.culprit() == 1 && !watcher.culprit_is_silent());
}

TEST(an_abort_from_elsewhere_brings_its_culprit) {
  for (int culprit : {-1, 3}) {
    Watcher watcher(kElsewhere);
    CHECK(watcher.culprit() == -1);
    watcher.hears_that(culprit);
    CHECK(watcher.gives_up(100));
    CHECK(watcher.reason() == "it is gone" && watcher.culprit() == culprit);
  }
}

TEST(who_has_never_said_anything_may_still_be_starting) {
  Watcher watcher(kElsewhere);
  CHECK(!watcher.gives_up(2 * kTimeout));
  watcher.hears_something();
  CHECK(watcher.gives_up(5 * kTimeout));
}

TEST(what_comes_on_the_control_connection_is_a_sign_of_life) {
  const auto [near, far] = connection();
  {
    Watcher watcher(kElsewhere, near);
    watcher.hears_something();
    const auto end = Clock::now() + std::chrono::duration<double>(2 * kTimeout);
    while (Clock::now() < end) {
      CHECK(send(far, "", 1, 0) == 1);  // nobody reads it
      CHECK(!watcher.gives_up(0.02));
    }
    CHECK(watcher.gives_up(100));
    CHECK(watcher.reason().find("silent") != std::string::npos);
  }
  close(near);
  close(far);
}

TEST(a_rank_elsewhere_has_a_limit_of_its_own) {
  Watcher patient(kElsewhere, -1, {kTimeout, 100 * kTimeout}),
      strict(kElsewhere, -1, {100 * kTimeout, kTimeout});
  patient.hears_something();
  strict.hears_something();
  CHECK(!patient.gives_up(2 * kTimeout));
  CHECK(strict.gives_up(100));
}

TEST(a_process_of_this_host_is_given_up_when_it_is_stopped) {
  const Sleeper sleeper;
  Watcher watcher(sleeper.peer());
  CHECK(!watcher.gives_up(2 * kTimeout));  // only starved, for all that one can see
  sleeper.stop();
  CHECK(watcher.gives_up(5 * kTimeout));
  CHECK(watcher.reason().find("(its process is stopped)") != std::string::npos);
}

// A question may already be there when the watch is made, and its answer goes through whoever owns the watch.
TEST(hooks_are_called_from_start_on) {
  AbortSignal abort;
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  hvd::wire::Channel other_end(pair[1]);
  const std::vector<uint8_t> question = hvd::wire::encode_dump(1, "why");
  CHECK(
      other_end.send(hvd::wire::wrap(hvd::wire::MessageType::kTo, {1, 1}, question.data() + sizeof(uint32_t),
                                     question.size() - sizeof(uint32_t))));
  std::vector<Watch::Watched> watched;
  watched.push_back({PeerProcess(0, kElsewhere), hvd::wire::Channel(pair[0])});
  std::atomic<int> asked{0};
  Watch::Hooks hooks;
  hooks.received = [&](int, const hvd::wire::Message&) { ++asked; };
  Watch watch(1, std::vector<int>{0, 0}, std::move(watched), {kTimeout, kTimeout}, &abort, std::move(hooks));
  usleep(100'000);
  CHECK(asked == 0);
  watch.start();
  for (const auto end = Clock::now() + std::chrono::seconds(60); asked == 0 && Clock::now() < end;)
    usleep(1000);
  CHECK(asked == 1);
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
