// Which members of a communicator live on which host, and who speaks for a host.
//
// A lane is a set of members, one on each host. Lane i has the i-th member of every host; hosts with fewer
// members let the same ones serve again. So every member leads to the other hosts through the lane with its
// own local index, and no two members of a host share a lane.
#pragma once

#include <vector>

namespace hvd {

class HierarchicalLayout {
 public:
  // hosts[i] is the host of member i.
  HierarchicalLayout(const std::vector<int>& hosts, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(place_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }
  // This rank's host and its index there, which is also the first lane it serves.
  int host() const { return place_[rank_].host; }
  int local() const { return place_[rank_].local; }
  int host_of(int member) const { return place_[member].host; }
  int lane_of(int member) const { return place_[member].local; }

  // The members on a host, ascending. Hosts count in the order of their numbers.
  const std::vector<int>& members(int host) const { return members_[host]; }
  int local_size(int host) const { return static_cast<int>(members_[host].size()); }
  int local_size() const { return local_size(host()); }

  int lanes() const { return most_; }
  int complete_lanes() const { return fewest_; }  // those that no member serves beside another
  // The local index of the member that serves the lane on the host.
  int server(int host, int lane) const { return lane % local_size(host); }
  bool serves(int lane) const { return server(host(), lane) == local(); }
  // By host.
  std::vector<int> lane_members(int lane) const;
  // The member of the host whose own lane this is, or -1.
  int owner(int host, int lane) const { return lane < local_size(host) ? members_[host][lane] : -1; }

 private:
  struct Place {
    int host, local;
  };
  int rank_;
  std::vector<std::vector<int>> members_;
  std::vector<Place> place_;
  int fewest_, most_;
};

}  // namespace hvd
