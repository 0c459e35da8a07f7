// Whatever is tuned, and however often, every collective gives the bits that it gives otherwise.
#include <unistd.h>

#include <string>
#include <vector>

#include "comm/tuning.h"
#include "engine/autotune.h"
#include "tests/check.h"
#include "tests/host_world.h"

namespace {

using namespace suite;
using hvd::Choices;
using hvd::kTunableCount;
using hvd::kTunables;
using hvd::Tuning;

Tuning tuning_of(const Choices& choices) {
  Tuning tuning;
  CHECK(hvd::take_choices({choices.begin(), choices.end()}, &tuning));
  return tuning;
}

// The standard, every value of each alone, and some in which all are at random.
std::vector<Tuning> tunings() {
  std::vector<Tuning> all = {tuning_of(hvd::standard_choices())};
  for (size_t i = 0; i < kTunableCount; ++i) {
    if (kTunables[i].part == hvd::kTunesRelease) continue;  // not the transports'
    for (size_t choice = 0; choice < kTunables[i].count(); ++choice) {
      Choices choices = hvd::standard_choices();
      choices[i] = static_cast<uint8_t>(choice);
      all.push_back(tuning_of(choices));
    }
  }
  Random random(1);
  for (int round = 0; round < 5; ++round) {
    Choices choices{};
    for (size_t i = 0; i < kTunableCount; ++i)
      choices[i] = static_cast<uint8_t>(pick(random, kTunables[i].count()));
    all.push_back(tuning_of(choices));
  }
  return all;
}

// Around all limits, those of the standard and the others.
void check_sizes(Communicator& comm, uint64_t operation, const Combine& combine) {
  for (size_t kilobytes : {1, 4, 16, 32, 64, 130, 260, 1100}) {
    const size_t count = (kilobytes << 10) / 4;
    for (size_t near : {count - 1, count, count + 1})
      check_allreduce(comm, average(DataType::kFloat32, comm.size()), near, ++operation, combine);
    check_reducescatter(comm, average(DataType::kBfloat16, comm.size()), count, ++operation, combine);
  }
}

}  // namespace

TEST(every_choice_gives_the_same_bits) {
  const std::vector<Tuning> all = tunings();
  for (Kind kind : {Kind::kShm, Kind::kUnix, Kind::kMpi}) {
    for (int size : {2, 3}) {
      run_ranks(kind, size, [&](Communicator& comm, Transport& transport) {
        for (const Tuning& tuning : all) {
          transport.tune(tuning);
          check_sizes(comm, 0, reduced);
          for (uint64_t operation = 0; operation < 12; ++operation) random_operation(comm, 50000, operation);
        }
      });
    }
  }
}

TEST(every_choice_gives_the_same_bits_on_several_hosts) {
  const std::vector<Tuning> all = tunings();
  for (const HostList& hosts : {HostList{0, 0, 1, 1}, HostList{2, 0, 1, 0, 2}}) {
    HostWorld world(hosts);
    on_threads(world.size(), [&](int rank) {
      Transport& transport = world.transport(rank);
      CHECK(transport.tuned_parts() == (hvd::kTunesShm | hvd::kTunesMesh | hvd::kTunesHosts));
      auto comm = transport.open(0, world.everyone());
      for (const Tuning& tuning : all) {
        transport.tune(tuning);
        check_sizes(*comm, 0, by_host(hosts));
      }
    });
  }
}

TEST(blocks_of_every_size_give_the_same_bits) {
  HostWorld world({0, 0, 1});
  on_threads(world.size(), [&](int rank) {
    Transport& transport = world.transport(rank);
    auto comm = transport.open(0, world.everyone());
    for (int64_t block : {2 << 20, 8 << 20, 32 << 20}) {
      Tuning tuning;
      tuning.block_bytes = block;
      transport.tune(tuning);
      check_allreduce(*comm, average(DataType::kFloat64, comm->size()), (size_t{5} << 19) + 1, 150,
                      by_host({0, 0, 1}));
    }
  });
}

TEST(another_choice_for_each_operation) {
  const std::vector<Tuning> all = tunings();
  auto mixture = [&](Communicator& comm, Transport& transport, const Combine& combine) {
    Random shared(7);
    for (uint64_t operation = 2000; operation < 2150; ++operation) {
      transport.tune(all[pick(shared, all.size())]);
      random_operation(comm, random_bytes(shared), operation, combine);
    }
  };
  for (Kind kind : kKinds)
    for (int size : {2, 3})
      run_ranks(kind, size,
                [&](Communicator& comm, Transport& transport) { mixture(comm, transport, reduced); });
  for (const HostList& hosts : {HostList{0, 0, 1, 1}, HostList{0, 0, 0, 1, 2, 2}}) {
    HostWorld world(hosts);
    on_threads(world.size(), [&](int rank) {
      auto comm = world.transport(rank).open(0, world.everyone());
      mixture(*comm, world.transport(rank), by_host(hosts));
    });
  }
}

// What decides which values are combined first would change bits: to add such a thing here needs a thought.
TEST(nothing_else_is_tuned) {
  std::string names;
  for (const hvd::Tunable& tunable : kTunables) names += std::string(tunable.name) + " ";
  CHECK(names == "whole_bytes mesh_chunk block_bytes once_total slot_parts ahead fusion_threshold ");
}

TEST(choices_are_checked) {
  Tuning tuning;
  const Choices standard = hvd::standard_choices();
  std::vector<uint8_t> choices(standard.begin(), standard.end());
  CHECK(hvd::take_choices(choices, &tuning));
  for (size_t i = 0; i < kTunableCount; ++i) {
    CHECK(tuning.*kTunables[i].value == Tuning().*kTunables[i].value);
    CHECK(std::is_sorted(kTunables[i].choices.begin(),
                         kTunables[i].choices.begin() + static_cast<ptrdiff_t>(kTunables[i].count())));
    std::vector<uint8_t> wrong = choices;
    wrong[i] = static_cast<uint8_t>(kTunables[i].count());
    CHECK(!hvd::take_choices(wrong, &tuning));
  }
  choices.pop_back();
  CHECK(!hvd::take_choices(choices, &tuning));
}

int main(int argc, char** argv) {
  alarm(600);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
