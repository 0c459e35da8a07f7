#include "comm/transport.h"

#include <algorithm>
#include <utility>

#include "comm/hierarchical/grid.h"
#include "comm/mesh/communicator.h"
#include "comm/mpi/exchange.h"
#include "comm/single/communicator.h"

namespace hvd {

namespace {

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::unique_ptr<MpiCalls> calls, int rank, int size, const AbortSignal& abort)
      : calls_(std::move(calls)), rank_(rank), abort_(abort), messages_(static_cast<size_t>(size)) {}

  const char* name() const override { return "mpi"; }
  const Traffic* traffic() const override { return &calls_->traffic; }

  std::unique_ptr<Communicator> open(int, std::vector<int> members) override {
    return open_grid(
        std::move(members), rank_, [this](std::vector<int> some) { return open_direct(std::move(some)); },
        grid_staging_, shared_.tuning);
  }

  std::unique_ptr<Communicator> open_direct(std::vector<int> members) {
    if (members.size() == 1) return make_single_communicator();
    const auto own = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    const auto size = static_cast<int>(members.size());
    return std::make_unique<MeshCommunicator>(
        std::make_unique<MpiExchange>(*calls_, messages_, members, own, abort_), own, size, shared_);
  }

  // Every message is consumed in its collective: nothing is left for the next.
  void reset(int) override {}
  void tune(const Tuning& tuning) override { shared_.tuning = tuning; }
  unsigned tuned_parts() const override { return kTunesMesh; }

 private:
  const std::unique_ptr<MpiCalls> calls_;
  const int rank_;
  const AbortSignal& abort_;
  std::vector<MpiMessages> messages_;
  MeshCommunicator::Shared shared_;
  std::vector<std::byte> grid_staging_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<MpiCalls> calls, int rank, int size,
                                              const AbortSignal& abort) {
  return std::make_unique<MpiTransport>(std::move(calls), rank, size, abort);
}

}  // namespace hvd
