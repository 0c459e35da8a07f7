// What is left of an engine in a forked child: nothing, and saying so must not wait for threads that are not
// there.
#include <fcntl.h>
#include <sys/wait.h>

#include <atomic>
#include <string>
#include <thread>

#include "check.h"
#include "half_world.h"
#include "thread_world.h"

TEST(a_forked_child_has_no_default_engine) {
  ThreadWorld(1).run([](Rank& rank) {
    hvd_set_default(rank.engine);
    std::atomic<bool> over{false};
    // At a fork it may be just holding the lock.
    std::thread busy([&] {
      while (!over) hvd_set_default(rank.engine);
    });
    for (int round = 0; round < 200; ++round) {
      const pid_t child = fork();
      CHECK(child >= 0);
      if (child == 0) {
        alarm(100);
        hvd_after_fork_in_child(rank.engine);
        hvd_place place;
        int32_t size = 0, included = 0;
        const hvd_request request = Rank::request(HVD_BARRIER, "in the child");
        CHECK(hvd_default_place(&place) == HVD_FAILED_PRECONDITION);
        CHECK(hvd_default_process_set(0, &size, &included) == HVD_FAILED_PRECONDITION);
        CHECK(hvd_submit_default(&request) == HVD_FAILED_PRECONDITION);
        CHECK(std::string(hvd_last_error()).find("hvd.init()") != std::string::npos);
        _exit(0);
      }
      int status = 0;
      CHECK(waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    over = true;
    busy.join();
    hvd_place place;
    CHECK(hvd_default_place(&place) == HVD_OK);
    hvd_set_default(nullptr);
  });
}

TEST(a_lost_connection_keeps_its_number) {
  // Otherwise a file that the application opens gets it, and is closed in a forked child.
  HalfWorld half(0, 2);
  const int number = half.control[1];
  hvd_engine* engine = hvd_create(&half.world);
  CHECK(engine != nullptr);
  char byte;
  CHECK(shutdown(half.others[0], SHUT_WR) == 0);
  CHECK(recv(half.others[0], &byte, 1, 0) == 0);  // the engine has noticed
  CHECK(fcntl(number, F_GETFD) >= 0);
  hvd_abort(engine, "enough");
  hvd_destroy(engine);
  CHECK(fcntl(number, F_GETFD) < 0);
  for (int fd : half.others) close(fd);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
