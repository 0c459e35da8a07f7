// The ring between the threads that make records and the one that writes them.
#include <atomic>
#include <thread>

#include "check.h"
#include "engine/record_ring.h"

using hvd::Record;
using hvd::RecordKind;
using hvd::RecordRing;
using Added = hvd::RecordRing::Added;

namespace {

Record record(uint64_t thread, uint64_t number) {
  Record made;
  made.kind = RecordKind::kMark;
  made.name = static_cast<uint32_t>(thread);
  made.time = made.bytes = made.argument = number;
  return made;
}

void take(RecordRing& ring, std::vector<Record>* taken) {
  ring.take([taken](const Record& each) { taken->push_back(each); });
}

}  // namespace

TEST(a_full_ring_takes_no_more_and_goes_on_when_it_was_emptied) {
  RecordRing ring(100 * sizeof(Record));  // 64 of them
  std::vector<Record> taken;
  uint64_t next = 0;
  for (int round = 0; round < 600; ++round) {
    for (int i = 0; i < 64; ++i) CHECK(ring.add(record(0, next++)) != Added::kFull);
    CHECK(ring.add(record(0, 0)) == Added::kFull && !ring.empty());
    take(ring, &taken);
    CHECK(ring.empty());
  }
  CHECK(taken.size() == 600 * 64);
  for (uint64_t i = 0; i < taken.size(); ++i) CHECK(taken[i].time == i && taken[i].kind == RecordKind::kMark);
}

TEST(each_half_is_told) {
  RecordRing ring(64 * sizeof(Record));
  std::vector<Record> taken;
  int halves = 0;
  for (uint64_t i = 0; i < 321; ++i) {
    halves += ring.add(record(0, i)) == Added::kHalf;
    if (i % 10 == 0) take(ring, &taken);
  }
  CHECK(halves == 10);
}

// Whole records, each once, those of a thread in their order; what was refused is missing and nothing else.
TEST(threads_that_add_while_one_takes) {
  constexpr uint64_t kThreads = 4, kEach = 50'000;
  RecordRing ring(256 * sizeof(Record));
  std::atomic<uint64_t> refused{0}, running{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t i = 1; i <= kEach; ++i)
        if (ring.add(record(thread, i)) == Added::kFull) {
          refused++;
          std::this_thread::yield();
        }
      running--;
    });
  std::vector<Record> taken;
  while (running > 0) take(ring, &taken);
  for (std::thread& thread : threads) thread.join();
  take(ring, &taken);
  CHECK(ring.empty() && taken.size() + refused == kThreads * kEach);
  uint64_t last[kThreads] = {};
  for (const Record& each : taken) {
    CHECK(each.name < kThreads && each.bytes == each.time && each.argument == each.time);
    CHECK(each.time > last[each.name]);
    last[each.name] = each.time;
  }
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
