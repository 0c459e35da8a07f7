#include "comm/shm_transport.h"

#include <algorithm>
#include <utility>

#include "comm/local.h"

namespace hvd {

namespace {

class ShmTransport final : public Transport {
 public:
  ShmTransport(void* memory, int rank, int size, const AbortSignal& abort)
      : segment_(memory, size), rank_(rank), abort_(abort) {}

  const char* name() const override { return "shm"; }

  std::unique_ptr<Communicator> open(int slot, std::vector<int> members) override {
    if (members.size() == 1) return make_local_communicator();
    return make_shm_communicator(segment_, staging_, slot, std::move(members), rank_, abort_);
  }

  void reset(int slot) override {
    RankFlags& flags = segment_.flags(slot, rank_);
    for (Flag* flag : {&flags.once[0], &flags.once[1], &flags.once_done, &flags.published, &flags.reduced,
                       &flags.fetched}) {
      flag->value.store(0, std::memory_order_release);
    }
    // The barrier before this call has shown that everything was read.
    if (staging_.slot == slot) staging_ = StagingUse();
  }

 private:
  ShmSegment segment_;
  StagingUse staging_;
  int rank_;
  const AbortSignal& abort_;
};

}  // namespace

size_t shm_bytes(int size) { return ShmSegment::bytes(size); }

std::unique_ptr<Transport> make_shm_transport(void* memory, int rank, int size, const AbortSignal& abort) {
  return std::make_unique<ShmTransport>(memory, rank, size, abort);
}

}  // namespace hvd
