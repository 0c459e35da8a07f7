#include "engine/record_ring.h"

namespace hvd {
namespace {

constexpr size_t kLeast = 16;

size_t places(size_t bytes) {
  size_t count = kLeast;
  while (2 * count * sizeof(Record) <= bytes) count *= 2;
  return count;
}

}  // namespace

// The memory is written to here, so that no record has to wait for the kernel to find a page.
RecordRing::RecordRing(size_t bytes) : capacity_(places(bytes)), records_(new Record[capacity_]()) {}

}  // namespace hvd
