#include "engine/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

#include "base/cgroup.h"
#include "base/json.h"
#include "engine/machine_speed.h"
#include "wire/codec.h"

namespace hvd {
namespace {

constexpr char kMagic[] = {'H', 'V', 'D', 'P', 'A', 'R', 'T', '1'};

// tables[n][b] is what byte b does to the checksum n bytes later.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
constexpr CrcTables crc_tables() {
  CrcTables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][i] = value;
  }
  for (size_t later = 1; later < tables.size(); ++later)
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[later - 1][i];
      tables[later][i] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  return tables;
}

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string clock_source() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name;
}

// Those that this process may run on, as "0-3,8".
std::string processors() {
  std::ifstream file("/proc/self/status");
  const std::string key = "Cpus_allowed_list:";
  for (std::string word; file >> word;)
    if (word == key && file >> word) return word;
  return "";
}

// The files that this process has begun, and how many worlds it has recorded. A forked child has another
// process id and begins anew.
struct Begun {
  std::mutex mutex;
  std::set<std::pair<pid_t, std::string>> files;
  int worlds = 0;
};
Begun& begun() {
  static auto* instance = new Begun;  // never destroyed: other threads may still run at exit
  return *instance;
}

std::string header(const RecordedRank& rank, int world) {
  const std::string& host = rank.hosts[static_cast<size_t>(rank.rank)];
  const auto here = static_cast<int>(std::count(rank.hosts.begin(), rank.hosts.end(), host));
  std::string text = R"({"version": 1, "rank": )" + std::to_string(rank.rank) + R"(, "size": )" +
                     std::to_string(rank.size) + R"(, "local_rank": )" + std::to_string(rank.local_rank) +
                     R"(, "host": )" + json_text(host) + R"(, "pid": )" + std::to_string(rank.pid) +
                     R"(, "hosts": [)";
  for (size_t i = 0; i < rank.hosts.size(); ++i) text += (i ? ", " : "") + json_text(rank.hosts[i]);
  return text + R"(], "transport": )" + json_text(rank.transport) + R"(, "world": )" + std::to_string(world) +
         R"(, "time_ns": )" + std::to_string(nanoseconds(CLOCK_MONOTONIC)) + R"(, "epoch_ns": )" +
         std::to_string(nanoseconds(CLOCK_REALTIME)) + R"(, "clock": )" + json_text(clock_source()) +
         R"(, "copy_speed": )" + std::to_string(copy_speed(here)) + R"(, "link_speed": )" +
         std::to_string(link_speed()) + R"(, "processors": )" + json_text(processors()) + R"(, "quota": )" +
         std::to_string(processor_quota()) + "}";
}

}  // namespace

uint32_t crc32(const uint8_t* data, size_t size) {
  static constexpr CrcTables kTables = crc_tables();
  uint32_t crc = 0xFFFFFFFFu;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {  // eight bytes at once: the lookups do not wait for each other
    uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    word ^= crc;
    crc = 0;
    for (size_t byte = 0; byte < 8; ++byte) crc ^= kTables[7 - byte][(word >> (8 * byte)) & 0xFF];
  }
  for (; i < size; ++i) crc = kTables[0][(crc ^ data[i]) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

Status RecordFile::open(const std::string& path, const RecordedRank& rank) {
  int world = 0;
  bool continued = false;
  {
    Begun& all = begun();
    std::lock_guard<std::mutex> lock(all.mutex);
    continued = !all.files.emplace(getpid(), path).second;
    world = all.worlds++;
  }
  path_ = path;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (continued ? 0 : O_TRUNC), 0666);
  bool begins = fd_ >= 0 && lseek(fd_, 0, SEEK_END) == 0;  // also if somebody has removed the first part
  if (fd_ < 0 || (begins && ::write(fd_, kMagic, sizeof kMagic) != sizeof kMagic)) {
    Status status =
        Status::invalid("Can't write the timeline's part '" + path + "': " + std::strerror(errno) + ".");
    close();
    return status;
  }
  return write(Block::kHeader, header(rank, world));
}

Status RecordFile::names(const std::vector<RecordedName>& names) {
  if (names.empty()) return {};
  wire::Writer out;
  for (const RecordedName& name : names) {
    const size_t length = std::min<size_t>(name.text.size(), UINT16_MAX);
    const size_t dimensions = std::min<size_t>(name.shape.size(), UINT8_MAX);
    out.number(name.number);
    out.number<uint8_t>(name.mark ? 1 : 0);
    out.number(name.kind);
    out.number(name.type);
    out.number(static_cast<uint8_t>(dimensions));
    out.number(name.tensors);
    out.number(static_cast<uint16_t>(length));
    for (size_t i = 0; i < dimensions; ++i) out.number(name.shape[i]);
    out.bytes().insert(out.bytes().end(), name.text.begin(),
                       name.text.begin() + static_cast<ptrdiff_t>(length));
  }
  return write(Block::kNames, out.bytes().data(), out.bytes().size());
}

Status RecordFile::records(const std::vector<Record>& records) {
  if (records.empty()) return {};
  return write(Block::kRecords, reinterpret_cast<const uint8_t*>(records.data()),
               records.size() * sizeof(Record));
}

Status RecordFile::end(uint64_t dropped, const std::string& reason) {
  return write(Block::kEnd, R"({"dropped": )" + std::to_string(dropped) + R"(, "reason": )" +
                                json_text(reason) + R"(, "time_ns": )" +
                                std::to_string(nanoseconds(CLOCK_MONOTONIC)) + "}");
}

Status RecordFile::write(Block type, const std::string& text) {
  return write(type, reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

Status RecordFile::write(Block type, const uint8_t* data, size_t size) {
  const uint32_t head[] = {static_cast<uint32_t>(type), static_cast<uint32_t>(size), crc32(data, size)};
  iovec parts[] = {{const_cast<uint32_t*>(head), sizeof head}, {const_cast<uint8_t*>(data), size}};
  const ssize_t written = writev(fd_, parts, 2);
  if (written == static_cast<ssize_t>(sizeof head + size)) return {};
  const int error = written < 0 ? errno : ENOSPC;
  return Status::unknown("Can't write the timeline's part '" + path_ + "': " + std::strerror(error) + ".");
}

void RecordFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace hvd
