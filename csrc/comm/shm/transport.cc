#include "comm/transport.h"

#include <memory>
#include <utility>

#include "base/processors.h"
#include "comm/shm/communicator.h"
#include "comm/single/communicator.h"

namespace hvd {

namespace {

// Small enough for the ring to stay in the caches, which ranks may have to share.
size_t sub_slot_bytes(int ranks_on_host) { return crowded(ranks_on_host) ? 24 << 10 : kSubSlotBytes; }

class ShmTransport final : public Transport {
 public:
  ShmTransport(void* memory, int rank, int size, const AbortSignal& abort, std::shared_ptr<SharedHeap> heap)
      : segment_(memory, size, sub_slot_bytes(size)), heap_(std::move(heap)), rank_(rank), abort_(abort) {}

  const char* name() const override { return "shm"; }
  void tune(const Tuning& tuning) override { tuning_ = tuning; }
  unsigned tuned_parts() const override { return kTunesShm; }

  std::unique_ptr<Communicator> open(int id, std::vector<int> members) override {
    if (members.size() == 1) return make_single_communicator();
    return std::make_unique<ShmCommunicator>(segment_, staging_, heap_.get(), id, std::move(members), rank_,
                                             abort_, tuning_);
  }

  void reset(int id) override {
    for (Flag& flag : segment_.flags(id, rank_).counters) flag.value.store(0, std::memory_order_release);
    // The barrier before this call has shown that everything was read.
    if (staging_.group && staging_.group->id() == id) staging_ = {};
  }

 private:
  const ShmSegment segment_;
  StagingUse<ShmGroup> staging_;
  const std::shared_ptr<SharedHeap> heap_;
  const int rank_;
  const AbortSignal& abort_;
  Tuning tuning_;
};

}  // namespace

size_t shm_bytes(int size) { return ShmSegment::bytes(size); }

std::unique_ptr<Transport> make_shm_transport(void* memory, int rank, int size, const AbortSignal& abort,
                                              std::shared_ptr<SharedHeap> heap) {
  return std::make_unique<ShmTransport>(memory, rank, size, abort, std::move(heap));
}

}  // namespace hvd
