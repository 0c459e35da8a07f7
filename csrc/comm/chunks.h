// How collectives cut their data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/pieces.h"

namespace hvd {

inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
inline uint32_t chunk_count(size_t bytes, size_t chunk_bytes) {
  return static_cast<uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
}

// The k-th chunk of `total` bytes; empty behind the end.
struct Chunk {
  size_t offset, bytes;
  Chunk(size_t total, size_t chunk_bytes, size_t k)
      : offset(std::min(total, chunk_bytes * k)), bytes(std::min(chunk_bytes, total - offset)) {}
};

inline size_t largest_of(const std::vector<Pieces>& lists) {
  size_t largest = 0;
  for (const Pieces& pieces : lists) largest = std::max(largest, total_bytes(pieces));
  return largest;
}

inline size_t total_of(const std::vector<Pieces>& lists) {
  size_t total = 0;
  for (const Pieces& pieces : lists) total += total_bytes(pieces);
  return total;
}

inline std::vector<Cursor> cursors_of(const std::vector<Pieces>& lists) {
  std::vector<Cursor> cursors;
  cursors.reserve(lists.size());
  for (const Pieces& pieces : lists) cursors.emplace_back(pieces);
  return cursors;
}

inline std::vector<size_t> bytes_of(const std::vector<Pieces>& lists) {
  std::vector<size_t> bytes;
  bytes.reserve(lists.size());
  for (const Pieces& pieces : lists) bytes.push_back(total_bytes(pieces));
  return bytes;
}

}  // namespace hvd
