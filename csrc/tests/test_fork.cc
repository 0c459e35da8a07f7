// What is left of an engine in a forked child: nothing, and saying so must not wait for threads that are not
// there.
#include <sys/wait.h>

#include <atomic>
#include <string>
#include <thread>

#include "check.h"
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
        alarm(20);
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

int main(int argc, char** argv) { return check::run_all(argc, argv); }
