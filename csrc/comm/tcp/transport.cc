#include "comm/transport.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/mesh/communicator.h"
#include "comm/single/communicator.h"
#include "comm/tcp/exchange.h"

namespace hvd {

namespace {

// Whether the other end has this end's address: then no network is between them.
bool stays_on_host(int fd) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0 ||
      own.ss_family != peer.ss_family)
    return false;
  auto same = [&](auto address, auto member) {
    const auto* a = reinterpret_cast<const decltype(address)*>(&own);
    const auto* b = reinterpret_cast<const decltype(address)*>(&peer);
    return std::memcmp(&(a->*member), &(b->*member), sizeof(a->*member)) == 0;
  };
  if (own.ss_family == AF_INET) return same(sockaddr_in(), &sockaddr_in::sin_addr);
  return own.ss_family == AF_INET6 && same(sockaddr_in6(), &sockaddr_in6::sin6_addr);
}

// Errors are of no consequence. Unix sockets know none of the options, and need none.
void prepare(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // What keeps networks from congestion may space packets out (BBR does), which halves the speed within a
  // host. Every Linux has Reno, which does not.
  constexpr char kReno[] = "reno";
  if (stays_on_host(fd)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof kReno - 1);
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::vector<int> mesh_fds, int rank, const AbortSignal& abort,
               const std::vector<LinkKeys>& keys)
      : mesh_fds_(std::move(mesh_fds)), secure_(mesh_fds_.size()), rank_(rank), abort_(abort) {
    for (size_t i = 0; i < mesh_fds_.size(); ++i) {
      if (mesh_fds_[i] < 0) continue;
      prepare(mesh_fds_[i]);
      if (!keys.empty()) secure_[i] = std::make_unique<SecureLink>(keys[i]);
    }
  }
  ~TcpTransport() override {
    for (int fd : mesh_fds_) {
      if (fd >= 0) close(fd);
    }
  }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  const char* name() const override { return "tcp"; }
  const Traffic* traffic() const override { return &traffic_; }

  std::unique_ptr<Communicator> open(int, std::vector<int> members) override {
    if (members.size() == 1) return make_single_communicator();
    std::vector<TcpExchange::Link> links;
    for (int member : members) links.push_back({mesh_fds_[member], member, &traffic_, secure_[member].get()});
    const auto own = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const auto size = static_cast<int>(members.size());
    return std::make_unique<MeshCommunicator>(std::make_unique<TcpExchange>(std::move(links), own, abort_),
                                              own, size, shared_);
  }

  // Connections carry no state from one collective to the next that depends on the communicator.
  void reset(int) override {}
  void tune(const Tuning& tuning) override { shared_.tuning = tuning; }
  unsigned tuned_parts() const override { return kTunesMesh; }

 private:
  Traffic traffic_;
  std::vector<int> mesh_fds_;
  std::vector<std::unique_ptr<SecureLink>> secure_;  // of each peer, or null
  int rank_;
  const AbortSignal& abort_;
  MeshCommunicator::Shared shared_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::vector<int> mesh_fds, int rank, const AbortSignal& abort,
                                              const std::vector<LinkKeys>& keys) {
  return std::make_unique<TcpTransport>(std::move(mesh_fds), rank, abort, keys);
}

}  // namespace hvd
