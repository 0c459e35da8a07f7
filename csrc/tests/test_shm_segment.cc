// The ranks of a host must see the same layout in their shared memory, whatever each would choose.
#include <sys/mman.h>

#include <stdexcept>
#include <string>

#include "check.h"
#include "comm/shm/segment.h"

namespace {

using namespace hvd;

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(start != MAP_FAILED);
  }
  ~Memory() { munmap(start, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* start;

 private:
  size_t bytes_;
};

}  // namespace

TEST(the_first_rank_decides_about_the_size_of_sub_slots) {
  Memory memory(ShmSegment::bytes(3));
  const ShmSegment crowded(memory.start, 3, 24 << 10);
  const ShmSegment roomy(memory.start, 3, 48 << 10);
  CHECK(crowded.sub_slot_bytes(3) == 24 << 10 && roomy.sub_slot_bytes(3) == 24 << 10);
  CHECK(&crowded.flags(1, 2) == &roomy.flags(1, 2) && crowded.ring(2) == roomy.ring(2));
}

TEST(the_ring_stays_within_its_bounds) {
  for (int size : {2, 3, 64, 128, 1000}) {
    Memory memory(ShmSegment::bytes(size));
    const ShmSegment segment(memory.start, size, kSubSlotBytes);
    auto* end = static_cast<std::byte*>(memory.start) + ShmSegment::bytes(size);
    for (int members : {2, size / 2, size}) {
      if (members < 2) continue;
      const size_t slot = static_cast<size_t>(members) * segment.sub_slot_bytes(members);
      CHECK(segment.sub_slot_bytes(members) % 64 == 0 && segment.sub_slot_bytes(members) > 0);
      CHECK(segment.ring(size - 1) + kSlots * slot <= end);
      CHECK(segment.ring(0) + kSlots * slot <= segment.once(1, 0));
    }
  }
}

TEST(ranks_of_another_kind_are_refused) {
  Memory memory(ShmSegment::bytes(4));
  const ShmSegment first(memory.start, 4, kSubSlotBytes);
  try {
    const ShmSegment other(memory.start, 3, kSubSlotBytes);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()).find("same version") != std::string::npos);
    return;
  }
  CHECK(false);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
