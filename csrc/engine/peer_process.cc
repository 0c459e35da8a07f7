#include "engine/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

namespace hvd {
namespace {

// /proc/<pid>/stat after the command name, whose parentheses may contain anything; empty if it can't be read.
std::vector<std::string> process_stat(int pid) {
  char path[64], text[2048];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return {};
  text[length] = 0;
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr) return {};
  std::istringstream words(rest + 1);
  std::vector<std::string> fields;
  for (std::string word; words >> word;) fields.push_back(word);
  return fields;
}

// Linux 6.15 and later keep the exit status with the pidfd once the parent has collected the process.
bool status_from_pidfd(int pidfd, int* status) {
  struct Info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
  } info{};
  static_assert(sizeof(Info) == 64, "the first published size of struct pidfd_info");
  constexpr uint64_t kExit = 1 << 3;
  info.mask = kExit;
  if (ioctl(pidfd, _IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, sizeof info), &info) != 0 || !(info.mask & kExit))
    return false;
  *status = info.exit_code;
  return true;
}

// A process that ended but was not collected yet shows its status in the last field of its stat file.
bool status_from_zombie(int pid, int* status) {
  constexpr size_t kState = 0, kExitCode = 49;
  std::vector<std::string> fields = process_stat(pid);
  if (fields.size() <= kExitCode || (fields[kState] != "Z" && fields[kState] != "X")) return false;
  *status = std::atoi(fields[kExitCode].c_str());
  return true;
}

}  // namespace

PeerProcess::PeerProcess(int rank, const hvd_peer& info)
    : rank_(rank), host_(info.host ? info.host : "?"), pid_(info.pid) {
  if (info.same_host && info.pid > 0 && info.pid != getpid())
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, info.pid, 0));
}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : rank_(other.rank_),
      host_(std::move(other.host_)),
      pid_(other.pid_),
      pidfd_(std::exchange(other.pidfd_, -1)) {}

std::string PeerProcess::name() const {
  return "rank " + std::to_string(rank_) + " (host " + host_ + ", pid " + std::to_string(pid_) + ")";
}

std::string PeerProcess::describe_end(int milliseconds, const std::string& otherwise) const {
  if (pidfd_ < 0) return otherwise;
  pollfd ended{pidfd_, POLLIN, 0};
  if (poll(&ended, 1, milliseconds) != 1) return otherwise;
  int status = 0;
  if (!status_from_zombie(pid_, &status) && !status_from_pidfd(pidfd_, &status)) return "has died";
  if (WIFSIGNALED(status))
    return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) +
           ")";
  return "exited with code " + std::to_string(WEXITSTATUS(status)) + " without shutting Horovod down";
}

char PeerProcess::state() const {
  if (pidfd_ < 0) return 0;
  const std::vector<std::string> fields = process_stat(pid_);
  return fields.empty() ? 0 : fields[0][0];
}

bool PeerProcess::runs() const {
  const char state = this->state();
  return state != 0 && std::strchr("TtZX", state) == nullptr;
}

std::string PeerProcess::describe_state() const {
  switch (state()) {
    case 0:
      return "";
    case 'T':
    case 't':
      return " (its process is stopped)";
    case 'D':
      return " (its process waits for a device)";
    case 'Z':
    case 'X':
      return " (its process has ended)";
    default:
      return " (its process exists but does not respond)";
  }
}

}  // namespace hvd
