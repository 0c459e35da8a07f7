#include "comm/hierarchical/layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hvd {

HierarchicalLayout::HierarchicalLayout(const std::vector<int>& hosts, int rank)
    : rank_(rank), place_(hosts.size()) {
  std::map<int, std::vector<int>> by_host;
  for (size_t member = 0; member < hosts.size(); ++member) {
    by_host[hosts[member]].push_back(static_cast<int>(member));
  }
  for (auto& entry : by_host) {
    const int host = static_cast<int>(members_.size());
    int local = 0;
    for (int member : entry.second) place_[member] = {host, local++};
    members_.push_back(std::move(entry.second));
  }
  auto [fewest, most] = std::minmax_element(members_.begin(), members_.end(),
                                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
  fewest_ = static_cast<int>(fewest->size());
  most_ = static_cast<int>(most->size());
}

std::vector<int> HierarchicalLayout::lane_members(int lane) const {
  std::vector<int> result;
  for (int host = 0; host < hosts(); ++host) result.push_back(members_[host][server(host, lane)]);
  return result;
}

}  // namespace hvd
