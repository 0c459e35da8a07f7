// Starting an engine where something is missing, and the threads it starts.
#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/thread.h"
#include "check.h"
#include "engine/stacks.h"
#include "half_world.h"
#include "thread_world.h"

namespace {

namespace fs = std::filesystem;

long open_descriptors() {
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

// A thread that was joined may still be shown for a moment.
bool has_engine_threads() {
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.rfind("hvd-", 0) == 0) return true;
  }
  return false;
}

// In a process of its own, which must come to its end soon.
void in_a_child(const std::function<void()>& body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(100);
    body();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// From now on every thread would need more memory than there is.
void leave_no_threads() {
  pthread_attr_t attributes;
  CHECK(pthread_getattr_default_np(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, size_t{1} << 46) == 0);
  CHECK(pthread_setattr_default_np(&attributes) == 0);
}

// Starts the engine when only `left` descriptors are left. Returns whether it came up.
bool starts_with(int left, int rank, int size) {
  HalfWorld half(rank, size);
  const long descriptors = open_descriptors();
  rlimit limit{64, 64};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<int> fill;
  for (int fd; (fd = dup(0)) >= 0;) fill.push_back(fd);
  for (int i = 0; i < left; ++i) {
    close(fill.back());
    fill.pop_back();
  }
  hvd_engine* engine = hvd_create(&half.world);
  for (int fd : fill) close(fd);
  if (engine == nullptr) {
    const std::string text = hvd_last_error();
    CHECK(text.find("Too many open files") != std::string::npos &&
          text.find("ulimit -n") != std::string::npos);
  } else {
    if (size == 1) CHECK(Rank(engine, 0, 1).simple(HVD_BARRIER, "barrier") == HVD_OK);
    hvd_abort(engine, "enough");
    hvd_destroy(engine);
  }
  while (has_engine_threads()) usleep(1000);
  CHECK(open_descriptors() == descriptors - half.handed_over);
  return engine != nullptr;
}

}  // namespace

TEST(an_engine_without_descriptors_fails_with_the_reason) {
  for (auto [rank, size] : {std::pair(0, 1), {0, 2}, {1, 2}}) {
    constexpr int kEnough = 12;
    for (int left = 0; left <= kEnough; ++left)
      in_a_child([&, rank = rank, size = size] {
        const bool started = starts_with(left, rank, size);
        CHECK(started || left < kEnough);
        CHECK(!started || left > 0);
      });
  }
}

TEST(an_engine_without_threads_fails_with_the_reason) {
  for (int rank : {0, 1})
    in_a_child([&] {
      HalfWorld half(rank, 2);
      const long descriptors = open_descriptors();
      leave_no_threads();
      CHECK(hvd_create(&half.world) == nullptr);
      CHECK(std::string(hvd_last_error()).find("temporarily unavailable") != std::string::npos);
      CHECK(open_descriptors() == descriptors - half.handed_over);
      sigset_t blocked;
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      CHECK(!sigismember(&blocked, SIGINT));
    });
}

TEST(what_a_signal_has_written_has_a_line_for_each_thread_and_the_main_one_first) {
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += "  File \"/a/b/deep.py\", line " + std::to_string(i) + " in f\n";
  const std::string written =
      "Thread 0x00007f01 (most recent call first):\n"
      "  File \"/usr/lib/queue.py\", line 171 in get\n"
      "  File \"train.py\", line 8 in idle here\n"
      "\n"
      "Thread 0x00007f02 (most recent call first):\n"
      "  File \"/x/horovod/_core.py\", line 5 in next_event\n"
      "  File \"/x/horovod/common/observer.py\", line 135 in _run\n"
      "\n"
      "Thread 0x00007f03 (most recent call first):\n" +
      deep +
      "\n"
      "Current thread 0x00007f04 (most recent call first):\n"
      "  File \"/home/me, line 3 in x/train.py\", line 7 in load\n"
      "  File \"/x/horovod/common/observer.py\", line 9 in dump\n"
      "  File ???, line ??? in ???\n"
      "  <no Python frame>\n";
  const std::string folded = hvd::folded_stacks(written);
  CHECK(folded.rfind("MainThread: me, line 3 in x/train.py:7 load <- common/observer.py:9 dump <- "
                     "File ???, line ??? in ??? <- <no Python frame>\n"
                     "Thread 0x00007f01: lib/queue.py:171 get <- train.py:8 idle here\n"
                     "Thread 0x00007f03: b/deep.py:0 f <- ",
                     0) == 0);
  CHECK(folded.find(" <- b/deep.py:11 f <- ...") == folded.size() - 25);
  CHECK(hvd::folded_stacks("").empty());
}

TEST(stacks_without_a_thread_to_find_them_are_what_the_kernel_says) {
  in_a_child([] {
    leave_no_threads();
    hvd::Notices notices;
    int answers = 0;
    hvd::Stacks stacks(&notices, [&](uint32_t number, int how, const std::string& text) {
      CHECK(number == 7 && how == HVD_STACKS_STATES && !text.empty());
      answers++;
    });
    stacks.ask(7, "request");
    CHECK(answers == 1);
  });
}

TEST(threads_block_signals_except_those_that_are_their_own_fault) {
  sigset_t before, after, there;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  hvd::start_thread("hvd-test", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &there); }).join();
  for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP})
    CHECK(!sigismember(&there, own));
  for (int others : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGPROF, SIGALRM, SIGPIPE})
    CHECK(sigismember(&there, others));
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < NSIG; ++signal)
    CHECK(sigismember(&before, signal) == sigismember(&after, signal));
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
