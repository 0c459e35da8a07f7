#include "base/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace hvd {
namespace {

// The content of a file, or nothing.
std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

// "<quota> <period>" in microseconds. Anything else ("max", -1, garbage) is no limit.
double limit_in(const std::string& text) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::istringstream numbers(text);
  double quota = 0, period = 0;
  if (!(numbers >> quota >> period) || quota <= 0 || period <= 0) return kNone;
  return quota / period;
}

double limit_of_group(const std::string& directory) {
  return std::min(limit_in(read_file(directory + "/cpu.max")),  // version 2
                  limit_in(read_file(directory + "/cpu.cfs_quota_us") + " " +
                           read_file(directory + "/cpu.cfs_period_us")));  // version 1
}

// Of a group and those above. In a container the path may be that on the host and lead nowhere; what is
// mounted at the top is then the container's own group.
double limit_of_branch(const std::string& mounted, std::string path) {
  double limit = limit_of_group(mounted);
  while (path.size() > 1) {
    limit = std::min(limit, limit_of_group(mounted + path));
    path.resize(std::max<size_t>(path.rfind('/'), 1));
  }
  return limit;
}

// Where the hierarchy of a line "<id>:<controllers>:<path>" may be mounted; nowhere if it does not matter.
std::vector<std::string> mounts_of(const std::string& controllers) {
  if (controllers.empty()) return {"", "/unified"};  // version 2, alone or beside version 1
  if (("," + controllers + ",").find(",cpu,") == std::string::npos) return {};
  return {"/" + controllers, "/cpu"};
}

}  // namespace

int processor_quota(const std::string& membership, const std::string& root) {
  double limit = std::numeric_limits<double>::infinity();
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    for (const std::string& mount : mounts_of(line.substr(first + 1, second - first - 1)))
      limit = std::min(limit, limit_of_branch(root + mount, line.substr(second + 1)));
  }
  if (limit > std::numeric_limits<int>::max()) return 0;
  return static_cast<int>(std::ceil(limit));
}

int processor_quota() { return processor_quota(read_file("/proc/self/cgroup"), "/sys/fs/cgroup"); }

}  // namespace hvd
