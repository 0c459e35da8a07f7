#include "engine/stacks.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "hvd.h"

namespace hvd {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(700);  // with Python
constexpr int kSignalMilliseconds = 300;                    // with the handler
constexpr size_t kMostText = 64 << 10;
constexpr size_t kMostWritten = 1 << 20;  // by the handler, with a line for each frame
constexpr size_t kFrames = 12;            // of each thread

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// `/a/b/train.py` as `b/train.py`.
std::string short_path(const std::string& path) {
  const size_t name = path.rfind('/');
  const size_t parent = name == std::string::npos || name == 0 ? name : path.rfind('/', name - 1);
  return path.empty() || path.front() != '/' || parent == std::string::npos ? path : path.substr(parent + 1);
}

// `File "/a/b/train.py", line 7 in load` as `b/train.py:7 load`; anything else as it is.
std::string place(const std::string& line) {
  constexpr char kFile[] = "File \"", kLine[] = "\", line ", kIn[] = " in ";
  const size_t file = line.find(kFile), number = line.rfind(kLine), in = line.find(kIn, number);
  if (file == std::string::npos || number == std::string::npos || in == std::string::npos)
    return line.substr(line.find_first_not_of(' '));
  const size_t path = file + sizeof kFile - 1, digits = number + sizeof kLine - 1;
  return short_path(line.substr(path, number - path)) + ":" + line.substr(digits, in - digits) + " " +
         line.substr(in + sizeof kIn - 1);
}

sighandler_t handler_of(int signal) {
  struct sigaction action{};
  return signal >= 0 && sigaction(signal, nullptr, &action) == 0 ? action.sa_handler : SIG_DFL;
}

}  // namespace

std::string thread_states() {
  std::string text;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return text;
  while (dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const std::string task = std::string("/proc/self/task/") + entry->d_name;
    const std::string name = first_line(task + "/comm"), stat = first_line(task + "/stat");
    const size_t end = stat.rfind(')');
    const char state = end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
    const std::string where = first_line(task + "/wchan");
    text += name + ": " +
            (state == 'R'   ? "runs"
             : state == 'D' ? "waits for a device"
                            : "sleeps") +
            (where.empty() || where == "0" ? "" : " in " + where) + "\n";
  }
  closedir(tasks);
  return text;
}

// The main thread is the oldest, and the last one there; it is also the one that takes the signal.
std::string folded_stacks(const std::string& text) {
  std::vector<std::string> threads;
  std::string now;  // whose places are read
  size_t frames = 0;
  bool observer = false;
  const auto end = [&] {
    if (!now.empty() && !observer) threads.push_back(now);
    now.clear();
  };
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (line.front() != ' ') {
      end();
      const size_t header = line.find(" (most recent");
      now = header == std::string::npos ? line : line.substr(0, header) + ":";
      frames = 0;
      observer = false;
      continue;
    }
    observer = observer || (line.find("horovod/common/observer.py\", line ") != std::string::npos &&
                            line.rfind(" in _run") == line.size() - 8);
    if (++frames > kFrames + 1) continue;
    now += (frames == 1 ? " " : " <- ") + (frames > kFrames ? "..." : place(line));
  }
  if (now.rfind("Current thread ", 0) == 0) now = "MainThread" + now.substr(now.find(':'));
  end();
  std::stable_partition(threads.begin(), threads.end(), [](const std::string& thread) {
    return thread.rfind("MainThread", 0) == 0 || thread.rfind("Current", 0) == 0;
  });
  std::string result;
  for (const std::string& thread : threads) result += (result.empty() ? "" : "\n") + thread;
  return result;
}

void Stacks::ask(uint32_t number, const std::string& reason) {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return;
    if (!thread_.joinable()) thread_ = start_thread("hvd-stacks", [this] { run(); });
    asked_.push_back({number, reason});
  } catch (const std::system_error&) {
    return answer_(number, HVD_STACKS_STATES, thread_states());
  }
  changed_.notify_all();
}

void Stacks::answered(uint32_t number, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  answered_number_ = number;
  answered_text_ = text.substr(0, kMostText);
  changed_.notify_all();
}

void Stacks::use_signal(int signal, int pipe) {
  std::lock_guard<std::mutex> lock(mutex_);
  signal_ = signal;
  pipe_ = pipe;
  handler_ = handler_of(signal);
}

void Stacks::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Stacks::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopped_ || !asked_.empty(); });
    if (stopped_) return;
    const Asked asked = std::move(asked_.front());
    asked_.pop_front();
    lock.unlock();
    find(asked);
    lock.lock();
  }
}

void Stacks::find(const Asked& asked) {
  if (!notices_->closed()) {  // who has just started may come to it in a moment
    notices_->push({HVD_EVENT_DUMP, 0, asked.number, 0, asked.reason});
    std::unique_lock<std::mutex> lock(mutex_);
    const auto answered = [&] { return stopped_ || answered_number_ == asked.number; };
    changed_.wait_for(lock, kPatience, answered);
    if (stopped_) return;
    if (answered_number_ == asked.number) {
      const std::string text = std::move(answered_text_);
      lock.unlock();
      return answer_(asked.number, HVD_STACKS_PYTHON, text);
    }
  }
  const std::string text = by_signal();
  if (!text.empty()) return answer_(asked.number, HVD_STACKS_SIGNAL, text);
  answer_(asked.number, HVD_STACKS_STATES, thread_states());
}

// Not if the application has put something else in the handler's place: that could end the process.
bool Stacks::send_signal(int* pipe) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pipe_ < 0 || handler_ == SIG_DFL || handler_of(signal_) != handler_) return false;
  char buffer[4096];
  while (read(pipe_, buffer, sizeof buffer) > 0) {  // what an earlier one may have left; it does not block
  }
  *pipe = pipe_;
  return kill(getpid(), signal_) == 0;
}

std::string Stacks::by_signal() {
  int pipe = -1;
  if (!send_signal(&pipe)) return "";
  char buffer[4096];
  std::string text;
  pollfd readable{pipe, POLLIN, 0};
  // The handler writes it all without a pause; when nothing more comes for a moment, that was it.
  while (text.size() < kMostWritten && poll(&readable, 1, text.empty() ? kSignalMilliseconds : 50) > 0) {
    const ssize_t got = read(pipe, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return folded_stacks(text).substr(0, kMostText);
}

}  // namespace hvd
