#include "comm/transport.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "comm/hierarchical/grid.h"
#include "comm/mesh/communicator.h"
#include "comm/single/communicator.h"
#include "comm/tcp/exchange.h"
#include "comm/tcp/stripes.h"

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
  TcpTransport(const std::vector<int>& mesh_fds, int rank, const AbortSignal& abort,
               const std::vector<LinkKeys>& keys, int streams)
      : ends_(mesh_fds.size() / static_cast<size_t>(streams)), rank_(rank), abort_(abort) {
    // There is something for every stream in each chunk: TCP's BBR is slow with what pauses too often.
    shared_.least_chunk = static_cast<size_t>(streams) * kStripe;
    for (std::vector<TcpExchange::End>& peer : ends_) peer.resize(static_cast<size_t>(streams));
    for (size_t i = 0; i < mesh_fds.size(); ++i)
      if (mesh_fds[i] >= 0)
        set(ends_[i % ends_.size()][i / ends_.size()], mesh_fds[i], keys.empty() ? nullptr : &keys[i]);
  }
  ~TcpTransport() override {
    for (const std::vector<TcpExchange::End>& peer : ends_)
      for (const TcpExchange::End& end : peer)
        if (end.fd >= 0) close(end.fd);
  }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  const char* name() const override { return "tcp"; }
  const Traffic* traffic() const override { return &traffic_; }

  std::unique_ptr<Communicator> open(int, std::vector<int> members) override {
    return open_grid(
        std::move(members), rank_, [this](std::vector<int> some) { return open_direct(std::move(some)); },
        grid_staging_, shared_.tuning);
  }

  std::unique_ptr<Communicator> open_direct(std::vector<int> members) {
    if (members.size() == 1) return make_single_communicator();
    std::vector<TcpExchange::Link> links;
    for (int member : members) links.push_back({&ends_[member], member, &traffic_});
    const auto own = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const auto size = static_cast<int>(members.size());
    return std::make_unique<MeshCommunicator>(std::make_unique<TcpExchange>(std::move(links), own, abort_),
                                              own, size, shared_);
  }

  Status connect(int peer, int fd, const LinkKeys* keys) override {
    if (peer >= 0 && peer < static_cast<int>(ends_.size()) && peer != rank_) {
      for (TcpExchange::End& end : ends_[peer]) {
        if (end.fd >= 0) continue;
        set(end, fd, keys);
        return {};
      }
    }
    close(fd);
    return Status::invalid("There is a connection to rank " + std::to_string(peer) +
                           " already, or no such rank.");
  }

  // Connections carry no state from one collective to the next that depends on the communicator.
  void reset(int) override {}
  void tune(const Tuning& tuning) override { shared_.tuning = tuning; }
  unsigned tuned_parts() const override { return kTunesMesh; }

 private:
  static void set(TcpExchange::End& end, int fd, const LinkKeys* keys) {
    prepare(fd);
    if (keys != nullptr) end.secure = std::make_unique<SecureLink>(*keys);
    end.fd = fd;
  }

  Traffic traffic_;
  std::vector<std::vector<TcpExchange::End>> ends_;  // by peer; never moved, as exchanges refer to them
  int rank_;
  const AbortSignal& abort_;
  MeshCommunicator::Shared shared_;
  std::vector<std::byte> grid_staging_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const std::vector<int>& mesh_fds, int rank,
                                              const AbortSignal& abort, const std::vector<LinkKeys>& keys,
                                              int streams) {
  return std::make_unique<TcpTransport>(mesh_fds, rank, abort, keys, streams);
}

}  // namespace hvd
