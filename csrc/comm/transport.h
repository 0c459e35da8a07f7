// Opens communicators, and the list of all transports: one function each.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/abort_signal.h"
#include "comm/communicator.h"
#include "comm/traffic.h"
#include "comm/tuning.h"

namespace hvd {

// With which what goes over a connection is encrypted.
struct LinkKeys {
  std::array<uint8_t, 32> send, receive;
};

// Owns the channel between all ranks of the world and opens communicators on it. Every communicator must be
// destroyed before its transport.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  // Null: nothing leaves the memory of this host.
  virtual const Traffic* traffic() const { return nullptr; }
  // `id` < kMaxCommunicators identifies the communicator on all ranks; `members` are sorted world ranks
  // that contain this one. An id used before may be opened again only if every rank of the world called
  // reset(id) after its last use and before anyone's open, with barriers of the world's communicator before
  // and after.
  virtual std::unique_ptr<Communicator> open(int id, std::vector<int> members) = 0;
  virtual void reset(int id) = 0;
  // Takes over a connected socket to a rank that had none, or whose streams are not all there, also when it
  // fails. Before the first collective that needs it, whichever thread calls.
  virtual Status connect(int /*peer*/, int fd, const LinkKeys* /*keys*/) {
    close(fd);
    return Status::invalid("The ranks of this job have no connections of their own for data.");
  }
  // From here on, for all communicators: to be called at the same place among the collectives of all ranks.
  virtual void tune(const Tuning&) {}
  // Which of its values matter here, as a sum of TunedPart.
  virtual unsigned tuned_parts() const { return 0; }
};

constexpr int kMaxCommunicators = 256;

std::unique_ptr<Transport> make_single_transport();

// `memory` is the start of shm_bytes(size) bytes that all ranks share, zero at first (a mapped memfd, or in
// tests one mapping for ranks that are threads). The caller keeps it mapped for the transport's life. `heap`
// is where tensors of theirs may be, the same on all ranks; or none has one.
class SharedHeap;
size_t shm_bytes(int size);
std::unique_ptr<Transport> make_shm_transport(void* memory, int rank, int size, const AbortSignal& abort,
                                              std::shared_ptr<SharedHeap> heap = nullptr);

// mesh_fds[r] is a connected stream socket to rank r (own entry -1), owned by the transport from here on.
// With `streams` of them between two ranks, those of the first stream to all ranks come first, and so on.
// With keys, one for each of these entries, everything that is sent over them is encrypted.
std::unique_ptr<Transport> make_tcp_transport(const std::vector<int>& mesh_fds, int rank,
                                              const AbortSignal& abort,
                                              const std::vector<LinkKeys>& keys = {}, int streams = 1);

// Shared memory within a host, sockets (`mesh_fds`, as for tcp) between hosts: `memory` is the start of
// shm_bytes(n) bytes that the n ranks of this rank's host share, or null if it is alone there; hosts[r] is
// the number of rank r's host. Only ranks that share a lane need connections. Values are combined host by
// host, see HierarchicalCommunicator. `heap`: of the ranks of this host.
std::unique_ptr<Transport> make_hierarchical_transport(void* memory, std::vector<int> hosts,
                                                       const std::vector<int>& mesh_fds, int rank,
                                                       const AbortSignal& abort,
                                                       const std::vector<LinkKeys>& keys = {},
                                                       std::shared_ptr<SharedHeap> heap = nullptr,
                                                       int streams = 1);

// Messages between the ranks of an MPI communicator, which are those of the world.
class MpiCalls;
std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<MpiCalls> calls, int rank, int size,
                                              const AbortSignal& abort);

}  // namespace hvd
