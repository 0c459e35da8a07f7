// The share of the processors' time that the cgroups of this process leave it: `docker --cpus`, the CPU limit
// of a Kubernetes pod.
#pragma once

#include <string>

namespace hvd {

// In whole processors, rounded up; 0 if there is no limit or it can't be told. `membership` is the text of
// /proc/self/cgroup, `root` where the hierarchies are mounted. The tightest limit of a group and those above
// counts.
int processor_quota(const std::string& membership, const std::string& root);

// The same for this process.
int processor_quota();

}  // namespace hvd
