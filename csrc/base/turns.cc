#include "base/turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace hvd {

void take_short_turns() {
  constexpr uint64_t kShortest = 100'000;  // that the kernel grants
  SchedulingAttributes mine{};
  if (syscall(SYS_sched_getattr, 0, &mine, sizeof mine, 0) != 0 || mine.policy != SCHED_OTHER) return;
  mine.runtime = kShortest;
  syscall(SYS_sched_setattr, 0, &mine, 0);  // if it is not granted, things go on as before
}

void stand_back() {
  constexpr int32_t kNice = 5;
  SchedulingAttributes mine{};
  if (syscall(SYS_sched_getattr, 0, &mine, sizeof mine, 0) != 0 ||
      (mine.policy != SCHED_OTHER && mine.policy != SCHED_BATCH))
    return;
  mine.policy = SCHED_BATCH;
  mine.nice = std::min(mine.nice + kNice, 19);
  mine.runtime = 0;  // the kernel's choice
  syscall(SYS_sched_setattr, 0, &mine, 0);
}

}  // namespace hvd
