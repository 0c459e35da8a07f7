#include "base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace hvd {

void Log::write(int level, const std::string& text) const {
  if (!at(level)) return;
  constexpr const char* names[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
  char stamp[64] = "";
  if (!hide_time_) {
    timeval now{};
    gettimeofday(&now, nullptr);
    tm parts{};
    localtime_r(&now.tv_sec, &parts);
    char seconds[32];
    std::strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
    std::snprintf(stamp, sizeof stamp, "[%s.%06ld] ", seconds, static_cast<long>(now.tv_usec));
  }
  // One write, so that lines of several threads and processes do not mix.
  std::string line =
      std::string(stamp) + "[" + std::to_string(rank_) + "] " + names[level] + ": " + text + "\n";
  [[maybe_unused]] ssize_t written = ::write(level <= HVD_LOG_INFO ? 1 : 2, line.data(), line.size());
}

}  // namespace hvd
