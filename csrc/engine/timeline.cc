#include "engine/timeline.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (unsigned char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      result += escaped;
    } else {
      result += static_cast<char>(c);
    }
  }
  return result + "\"";
}

std::string upper(const char* text) {
  std::string result = text;
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return result;
}

}  // namespace

Status Timeline::start(const std::string& path, bool mark_cycles) {
  stop();
  std::lock_guard<std::mutex> lock(mutex_);
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr)
    return Status::invalid("Can't write the timeline file '" + path + "': " + std::strerror(errno) + ".");
  mark_cycles_ = mark_cycles;
  first_ = true;
  rows_.clear();
  negotiating_.clear();
  origin_ = std::chrono::steady_clock::now();
  active_ = true;
  std::fputs("[\n]\n", file_);
  // Tells tools where on the wall clock the times of the trace begin.
  auto epoch = std::chrono::system_clock::now().time_since_epoch();
  write(R"({"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": )" +
        std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()) + "}}");
  write(R"({"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}})");
  return {};
}

void Timeline::stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  active_ = false;
  if (file_ != nullptr) std::fclose(file_);
  file_ = nullptr;
}

// Replaces the closing bracket, so that a reader never finds half an array.
void Timeline::write(const std::string& json) {
  std::fseek(file_, -3, SEEK_END);
  std::string text = (first_ ? "\n" : ",\n") + json + "\n]\n";
  first_ = false;
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

int Timeline::row(const std::string& name) {
  auto [found, fresh] = rows_.try_emplace(name, static_cast<int>(rows_.size()) + 1);
  if (fresh) {
    std::string pid = std::to_string(found->second);
    write(R"({"name": "process_name", "ph": "M", "pid": )" + pid + R"(, "args": {"name": )" + quoted(name) +
          "}}");
    write(R"({"name": "process_sort_index", "ph": "M", "pid": )" + pid + R"(, "args": {"sort_index": )" +
          pid + "}}");
  }
  return found->second;
}

void Timeline::event(const std::string& name, char phase, const std::string& label,
                     const std::string& arguments) {
  auto since = std::chrono::steady_clock::now() - origin_;
  std::string json = std::string(R"({"ph": ")") + phase + R"(", "pid": )" + std::to_string(row(name)) +
                     R"(, "tid": 0, "ts": )" +
                     std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  if (!label.empty()) json += R"(, "name": )" + quoted(label);
  if (phase == 'X') json += R"(, "dur": 0)";
  if (!arguments.empty()) json += R"(, "args": {)" + arguments + "}";
  write(json + "}");
}

void Timeline::negotiate_begin(const std::string& name, const char* kind) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr || negotiating_[name]++ > 0) return;
  event(name, 'B', "NEGOTIATE_" + upper(kind), "");
}

void Timeline::rank_ready(const std::string& name, int rank) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr) event(name, 'X', std::to_string(rank), "");
}

void Timeline::negotiate_end(const std::string& name) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = negotiating_.find(name);
  if (file_ == nullptr || found == negotiating_.end()) return;
  negotiating_.erase(found);
  event(name, 'E', "", "");
}

void Timeline::run_begin(const std::string& name, const char* kind) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr) event(name, 'B', upper(kind), "");
}

void Timeline::run_end(const std::string& name, const std::string& dtype, const std::string& shape) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr) return;
  event(name, 'E', "", R"("dtype": )" + quoted(dtype) + R"(, "shape": )" + quoted(shape));
}

void Timeline::cycle() {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr || !mark_cycles_) return;
  auto since = std::chrono::steady_clock::now() - origin_;
  write(R"({"name": "CYCLE_START", "ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": )" +
        std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(since).count()) + "}");
}

}  // namespace hvd
