#include "comm/pieces.h"

#include <algorithm>
#include <cstring>

#include "base/cache_line.h"
#include "kernels/kernels.h"

namespace hvd {

namespace {

// Shorter pieces are reduced in chunks of kChunk bytes, to call the kernel once for many of them.
constexpr size_t kDirectBytes = 2048;
constexpr size_t kChunk = 8192;
// Copies to shared memory go forward in such steps, each of which asks for its cache lines first.
constexpr size_t kOwnedBytes = 4096;

void copy_to_shared(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t length; bytes > 0; bytes -= length, to += length, from += length) {
    length = std::min(bytes, kOwnedBytes);
    for (size_t i = 0; i < length; i += kCacheLine) own_line(to + i);
    std::memcpy(to, from, length);
  }
}

void reduce_contiguous(const Reduction& reduction, std::byte* to, int replaced,
                       std::vector<std::byte*>& sources, size_t bytes, const std::byte* ahead) {
  kernels::reduce(reduction, to, replaced < 0 ? nullptr : sources[replaced],
                  reinterpret_cast<const void* const*>(sources.data()), static_cast<int>(sources.size()),
                  bytes / size_of(reduction.type), ahead);
  for (std::byte*& source : sources) source += bytes;
}

}  // namespace

void Cursor::settle() {
  while (left_ > 0 && within_ >= piece_->bytes) {
    within_ -= piece_->bytes;
    start_ += piece_->bytes;
    ++piece_;
    --left_;
  }
}

void Cursor::advance(size_t bytes) {
  within_ += bytes;
  settle();
}

void Cursor::seek(size_t offset) {
  while (offset < start_) {
    --piece_;
    ++left_;
    start_ -= piece_->bytes;
    within_ = 0;
  }
  within_ = offset - start_;
  settle();
}

Pieces take(Cursor& place, size_t bytes) {
  Pieces pieces;
  while (bytes > 0) {
    const size_t length = std::min(place.contiguous(), bytes);
    pieces.push_back({place.here(), length});
    place.advance(length);
    bytes -= length;
  }
  return pieces;
}

void append(Pieces& list, const Pieces& more) { list.insert(list.end(), more.begin(), more.end()); }

void gather(Cursor& from, void* to, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0) {
    size_t length = std::min(from.contiguous(), bytes);
    copy_to_shared(target, from.here(), length);
    from.advance(length);
    target += length;
    bytes -= length;
  }
}

void scatter(const void* from, Cursor& to, size_t bytes, const std::byte* ahead) {
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    size_t length = std::min(to.contiguous(), bytes);
    kernels::copy(to.here(), source, length, ahead);
    if (ahead != nullptr) ahead += length;
    to.advance(length);
    source += length;
    bytes -= length;
  }
}

void copy(Cursor& from, Cursor& to, size_t bytes) {
  while (bytes > 0) {
    size_t length = std::min({from.contiguous(), to.contiguous(), bytes});
    if (from.here() != to.here()) std::memcpy(to.here(), from.here(), length);
    from.advance(length);
    to.advance(length);
    bytes -= length;
  }
}

void copy(const Pieces& from, const Pieces& to) {
  Cursor source(from), target(to);
  copy(source, target, total_bytes(from));
}

void reduce(const Reduction& reduction, Cursor& own_input, int own, std::vector<std::byte*>& sources,
            int replaced, Cursor& to, size_t bytes, const std::byte* ahead) {
  alignas(64) std::byte chunk[kChunk];
  while (bytes > 0) {
    size_t length = std::min({own_input.contiguous(), to.contiguous(), bytes});
    if (length >= kDirectBytes || length == bytes) {
      sources[own] = own_input.here();
      reduce_contiguous(reduction, to.here(), replaced, sources, length, ahead);
      own_input.advance(length);
      to.advance(length);
    } else {
      length = std::min(bytes, kChunk);
      gather(own_input, chunk, length);
      sources[own] = chunk;
      reduce_contiguous(reduction, chunk, replaced, sources, length, ahead);
      scatter(chunk, to, length);
    }
    if (ahead != nullptr) ahead += length;
    bytes -= length;
  }
}

}  // namespace hvd
