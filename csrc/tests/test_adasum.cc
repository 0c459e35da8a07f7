// Adasum on every transport, against the same formula on whole vectors.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "engine/adasum.h"
#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/comm_suite.h"
#include "tests/host_world.h"

namespace {

using namespace suite;

using Parts = std::vector<std::pair<size_t, size_t>>;  // first, end

// Which elements each rank of a group combines in the step that makes it: halves of halves.
Parts parts_of(size_t count, size_t ranks) {
  Parts parts(ranks, {0, count});
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t bit = 1; bit < ranks; bit *= 2) {
      auto& [first, end] = parts[rank];
      const size_t middle = first + (end - first + 1) / 2;
      (rank & bit ? first : end) = middle;
    }
  }
  return parts;
}

// Scalar products are sums over the parts, in the order of the ranks; those of a part come in chunks.
Bytes adasum_of_two(DataType type, const Bytes& a, const Bytes& b, size_t ranks) {
  constexpr size_t kChunk = 4 << 20;
  const size_t element = hvd::size_of(type), count = a.size() / element;
  std::array<double, 3> total{};
  for (const auto& [first, end] : parts_of(count, ranks)) {
    std::array<double, 3> dots{};
    for (size_t at = first; at < end; at += kChunk / element)
      hvd::kernels::dots(type, a.data() + at * element, b.data() + at * element,
                         std::min(kChunk / element, end - at), dots.data());
    for (size_t i = 0; i < dots.size(); ++i) total[i] += dots[i];
  }
  auto weight = [&](double norm) { return norm == 0 ? 1 : 1 - total[0] / (2 * norm); };
  Bytes result(a.size());
  hvd::kernels::combine(type, result.data(), a.data(), b.data(), count, weight(total[1]), weight(total[2]));
  return result;
}

Bytes adasum_of_all(DataType type, std::vector<Bytes> vectors) {
  for (size_t ranks = 2; vectors.size() > 1; ranks *= 2) {
    std::vector<Bytes> results;
    for (size_t i = 0; i < vectors.size(); i += 2)
      results.push_back(adasum_of_two(type, vectors[i], vectors[i + 1], ranks));
    vectors = std::move(results);
  }
  return vectors.front();
}

void check_adasum(Communicator& comm, DataType type, size_t count, uint64_t operation) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(values(type, count, seed_of(operation, rank)));
  Bytes data = inputs[static_cast<size_t>(comm.rank())];
  CHECK(hvd::adasum_in_place(comm, type, data.data(), data.size()).ok());
  CHECK(data == adasum_of_all(type, inputs));
}

void check_sizes(Communicator& comm) {
  uint64_t operation = 0;
  for (size_t count : {0, 1, 2, 3, 7, 16, 31, 1000, 40001}) {
    for (DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64})
      check_adasum(comm, type, count, ++operation);
  }
}

// Counts what this rank sends to others.
class Counting final : public Communicator {
 public:
  explicit Counting(Communicator& behind) : behind_(behind) {}
  int rank() const override { return behind_.rank(); }
  int size() const override { return behind_.size(); }
  Status barrier() override { return behind_.barrier(); }
  Status allreduce(const Reduction& reduction, const Pieces& in, const Pieces& out) override {
    return behind_.allreduce(reduction, in, out);
  }
  Status reducescatter(const Reduction& reduction, const std::vector<Pieces>& in,
                       const Pieces& out) override {
    return behind_.reducescatter(reduction, in, out);
  }
  Status allgather(const Pieces& in, const std::vector<Pieces>& out) override {
    sent += static_cast<size_t>(size() - 1) * hvd::total_bytes(in);
    return behind_.allgather(in, out);
  }
  Status broadcast(const Pieces& data, int root) override { return behind_.broadcast(data, root); }
  Status alltoall(const std::vector<Pieces>& in, const std::vector<Pieces>& out) override {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) sent += hvd::total_bytes(in[static_cast<size_t>(peer)]);
    return behind_.alltoall(in, out);
  }

  size_t sent = 0;

 private:
  Communicator& behind_;
};

void run_world(Kind kind, int size, const std::function<void(Communicator&)>& body) {
  World world(kind, size);
  on_threads(size, [&](int rank) {
    auto comm = world.transport(rank).open(0, world.everyone());
    body(*comm);
  });
}

}  // namespace

TEST(every_size_and_type_on_every_transport) {
  for (Kind kind : {Kind::kShm, Kind::kUnix, Kind::kMpi})
    for (int size : {1, 2, 4, 8, 16}) run_world(kind, size, check_sizes);
  for (const HostList& hosts : {HostList{0, 0, 1, 1}, HostList{0, 1, 0, 1}, HostList{0, 0, 0, 1},
                                HostList{0, 0, 1, 1, 2, 2, 3, 3}, HostList{0, 0, 0, 1, 1, 2, 2, 2}})
    run_hosts(hosts, [](Communicator& comm, const HostList&) { check_sizes(comm); });
}

TEST(halves_of_several_chunks) {
  constexpr size_t kPerChunk = (4 << 20) / sizeof(float);
  for (int size : {2, 4}) {
    run_world(Kind::kShm, size, [](Communicator& comm) {
      uint64_t operation = 100;
      for (size_t count : {2 * kPerChunk, 2 * kPerChunk + 1, 4 * kPerChunk - 1, 4 * kPerChunk + 3})
        check_adasum(comm, DataType::kFloat32, count, ++operation);
    });
  }
}

TEST(twice_the_vector_is_sent_whatever_the_number_of_ranks) {
  for (int size : {2, 4, 8, 16}) {
    run_world(Kind::kShm, size, [](Communicator& comm) {
      Bytes data = values(DataType::kFloat32, 1 << 16, seed_of(1, comm.rank()));
      Counting counting(comm);
      CHECK(hvd::adasum_in_place(counting, DataType::kFloat32, data.data(), data.size()).ok());
      const double expected = 2.0 * (comm.size() - 1) / comm.size() * static_cast<double>(data.size());
      CHECK(static_cast<double>(counting.sent) > 0.99 * expected);
      CHECK(static_cast<double>(counting.sent) < 1.01 * expected);
    });
  }
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
