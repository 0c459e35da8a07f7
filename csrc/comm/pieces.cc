#include "comm/pieces.h"

#include <algorithm>
#include <cstring>

#include "base/cache_line.h"
#include "kernels/kernels.h"

namespace hvd {

namespace {

// Shorter pieces are reduced in blocks of kBlock bytes, to call the kernel once for many of them.
constexpr size_t kDirectRun = 2048;
constexpr size_t kBlock = 8192;
// Copies to shared memory go forward in such steps, each of which asks for its cache lines first.
constexpr size_t kOwnedBytes = 4096;

void copy_to_shared(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t run; bytes > 0; bytes -= run, to += run, from += run) {
    run = std::min(bytes, kOwnedBytes);
    for (size_t i = 0; i < run; i += kCacheLine) own_line(to + i);
    std::memcpy(to, from, run);
  }
}

void reduce_run(const Reduction& reduction, std::byte* to, int replaced, std::vector<std::byte*>& sources,
                size_t bytes, const std::byte* ahead) {
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

void gather(Cursor& from, void* to, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0) {
    size_t run = std::min(from.run(), bytes);
    copy_to_shared(target, from.here(), run);
    from.advance(run);
    target += run;
    bytes -= run;
  }
}

void scatter(const void* from, Cursor& to, size_t bytes, const std::byte* ahead) {
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    size_t run = std::min(to.run(), bytes);
    kernels::copy(to.here(), source, run, ahead);
    if (ahead != nullptr) ahead += run;
    to.advance(run);
    source += run;
    bytes -= run;
  }
}

void copy(Cursor& from, Cursor& to, size_t bytes) {
  while (bytes > 0) {
    size_t run = std::min({from.run(), to.run(), bytes});
    if (from.here() != to.here()) std::memcpy(to.here(), from.here(), run);
    from.advance(run);
    to.advance(run);
    bytes -= run;
  }
}

void copy(const Pieces& from, const Pieces& to) {
  Cursor source(from), target(to);
  copy(source, target, total_bytes(from));
}

void reduce(const Reduction& reduction, Cursor& own_input, int own, std::vector<std::byte*>& sources,
            int replaced, Cursor& to, size_t bytes, const std::byte* ahead) {
  alignas(64) std::byte block[kBlock];
  while (bytes > 0) {
    size_t run = std::min({own_input.run(), to.run(), bytes});
    if (run >= kDirectRun || run == bytes) {
      sources[own] = own_input.here();
      reduce_run(reduction, to.here(), replaced, sources, run, ahead);
      own_input.advance(run);
      to.advance(run);
    } else {
      run = std::min(bytes, kBlock);
      gather(own_input, block, run);
      sources[own] = block;
      reduce_run(reduction, block, replaced, sources, run, ahead);
      scatter(block, to, run);
    }
    if (ahead != nullptr) ahead += run;
    bytes -= run;
  }
}

}  // namespace hvd
