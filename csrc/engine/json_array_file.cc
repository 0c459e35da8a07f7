#include "engine/json_array_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd {
namespace {

const std::string kEnd = "\n]\n";
constexpr size_t kShort = 4 << 10, kLong = 64 << 10;

Status trouble(const std::string& path, int error) {
  return Status::invalid("Can't write the timeline file '" + path + "': " + std::strerror(error) + ".");
}

}  // namespace

Status JsonArrayFile::open(const std::string& path, Writes writes) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  path_ = path;
  most_ = writes == Writes::kLong ? kLong : kShort;
  if (fd_ < 0) return trouble(path, errno);
  end_ = 0;
  first_ = true;
  pending_ = "[";
  return flush();
}

void JsonArrayFile::add(const std::string& entry) {
  pending_ += first_ ? "\n" : ",\n";
  pending_ += entry;
  first_ = false;
  if (pending_.size() >= most_) write_pending();
}

void JsonArrayFile::write_pending() {
  if (failure_.ok() && !pending_.empty()) failure_ = write(pending_);
  pending_.clear();
}

Status JsonArrayFile::flush() {
  write_pending();
  return failure_;
}

// `text` is changed.
Status JsonArrayFile::write(std::string& text) {
  text += kEnd;
  const ssize_t written = pwrite(fd_, text.data(), text.size(), end_);
  if (written == static_cast<ssize_t>(text.size())) {
    end_ += static_cast<int64_t>(text.size() - kEnd.size());
    return {};
  }
  const int error = written < 0 ? errno : ENOSPC;
  // There was room for this before.
  if (end_ > 0 && pwrite(fd_, kEnd.data(), kEnd.size(), end_) > 0) [[maybe_unused]]
    int cut = ftruncate(fd_, end_ + static_cast<int64_t>(kEnd.size()));
  return trouble(path_, error);
}

void JsonArrayFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  pending_.clear();
}

}  // namespace hvd
