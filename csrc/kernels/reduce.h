// reduce() for the instruction set of the including file; see elements.h for how that works.
#pragma once

#include "base/cache_line.h"
#include "base/integer_types.h"
#include "base/types.h"
#include "kernels/elements.h"
#include "kernels/integer_finish.h"

namespace hvd::kernels {
namespace {

constexpr size_t kUnroll = 4;
constexpr int kMaxRest = 15;          // sources beside the first; more at once defeat the prefetchers
constexpr size_t kChunkBytes = 8192;  // of a chunk: a fraction of the first-level cache
constexpr size_t kOwnAhead = 512;     // bytes; lines of shared memory that are asked for in advance

// Reduces `first` and the `n` sources `rest` (read from their element `offset` on), in this order.
// First, E and Out have the same kWidth and Vector; they differ only where intermediate results of 16-bit
// types are kept in float32. All sources of a step are read before anything of it is written, so `to` may be
// one of them.
template <class First, class E, class Out, class Op>
struct Pass {
  using V = typename E::Vector;
  const typename First::Stored* first;
  const void* const* rest;
  int n;
  size_t offset;
  typename Out::Stored* to;
  typename Out::Stored* copy;
  const void* ahead;
  bool scaled;
  typename E::Scalar factor;

  template <size_t kVectors, bool kCopy>
  HVD_INLINE void step(size_t i) const {
    constexpr size_t kWidth = E::kWidth;
    if constexpr (kCopy) {
#pragma GCC unroll 4
      for (size_t at = 0; at < kVectors * kWidth * sizeof copy[0]; at += kCacheLine) {
        own_line(reinterpret_cast<const char*>(copy + i) + at + kOwnAhead);
        expect_line(static_cast<const char*>(ahead) + i * sizeof copy[0] + at);
      }
    }
    V v[kVectors];
#pragma GCC unroll 4
    for (size_t u = 0; u < kVectors; ++u) v[u] = First::load(first + i + u * kWidth);
#pragma GCC unroll 1
    for (int k = 0; k < n; ++k) {
      const auto* source = static_cast<const typename E::Stored*>(rest[k]) + offset + i;
#pragma GCC unroll 4
      for (size_t u = 0; u < kVectors; ++u) v[u] = Op::apply(v[u], E::load(source + u * kWidth));
    }
    if constexpr (E::kFloating) {
      if (scaled) {
#pragma GCC unroll 4
        for (size_t u = 0; u < kVectors; ++u) v[u] = v[u] * factor;
      }
    }
    decltype(Out::pack(v[0])) packed[kVectors];
#pragma GCC unroll 4
    for (size_t u = 0; u < kVectors; ++u) packed[u] = Out::pack(v[u]);
#pragma GCC unroll 4
    for (size_t u = 0; u < kVectors; ++u) store_raw(to + i + u * kWidth, packed[u]);
    // One destination after the other: alternating between two cache lines is up to twice as slow.
    if constexpr (kCopy) {
#pragma GCC unroll 4
      for (size_t u = 0; u < kVectors; ++u) store_raw(copy + i + u * kWidth, packed[u]);
    }
  }

  // Fewer elements than a vector has: through zero-padded vectors, so that they get the same arithmetic.
  HVD_NOINLINE void partial(size_t i, size_t count) const {
    typename First::Stored begin[First::kWidth] = {};
    __builtin_memcpy(begin, first + i, count * sizeof begin[0]);
    V v = First::load(begin);
    for (int k = 0; k < n; ++k) {
      typename E::Stored next[E::kWidth] = {};
      __builtin_memcpy(next, static_cast<const typename E::Stored*>(rest[k]) + offset + i,
                       count * sizeof next[0]);
      v = Op::apply(v, E::load(next));
    }
    if constexpr (E::kFloating)
      if (scaled) v = v * factor;
    const auto packed = Out::pack(v);
    __builtin_memcpy(to + i, &packed, count * sizeof to[0]);
    if (copy) __builtin_memcpy(copy + i, &packed, count * sizeof to[0]);
  }

  template <bool kCopy>
  HVD_NOINLINE void range(size_t end) const {
    constexpr size_t kWidth = E::kWidth;
    const Pass local = *this;  // stays in registers: the stores could change *this for all the compiler knows
    size_t i = 0;
    for (; i + kUnroll * kWidth <= end; i += kUnroll * kWidth) local.template step<kUnroll, kCopy>(i);
    for (; i + kWidth <= end; i += kWidth) local.template step<1, kCopy>(i);
    if (i < end) partial(i, end - i);
  }

  void run(size_t count) const { copy ? range<true>(count) : range<false>(count); }
};

struct Job {
  void* to;
  void* copy;
  const void* ahead;
  const void* const* sources;
  int n;
  size_t begin, end;  // elements
  double factor;
};

// Any number of sources, without the copy.
template <class E, class Op>
void reduce_plain(const Job& job) {
  using Stored = typename E::Stored;
  using Buffer = typename E::Accumulator;
  const bool scaled = E::kFloating && job.factor != 1.0;
  const auto factor = to_factor<E>(job.factor);
  const auto* first = static_cast<const Stored*>(job.sources[0]);
  auto* to = static_cast<Stored*>(job.to);
  const void* const* rest = job.sources + 1;
  const int n = job.n - 1;
  if (n <= kMaxRest) {
    const Pass<E, E, E, Op> only{first + job.begin, rest,    n,      job.begin, to + job.begin,
                                 nullptr,           nullptr, scaled, factor};
    return only.run(job.end - job.begin);
  }
  constexpr size_t kChunk = kChunkBytes / sizeof(typename Buffer::Stored);
  alignas(kCacheLine) typename Buffer::Stored buffer[kChunk];
  for (size_t begin = job.begin; begin < job.end; begin += kChunk) {
    const size_t count = job.end - begin < kChunk ? job.end - begin : kChunk;
    const Pass<E, E, Buffer, Op> opening{first + begin, rest,    kMaxRest, begin, buffer,
                                         nullptr,       nullptr, false,    factor};
    opening.run(count);
    int done = kMaxRest;
    for (; n - done > kMaxRest; done += kMaxRest) {
      const Pass<Buffer, E, Buffer, Op> middle{buffer,  rest + done, kMaxRest, begin, buffer,
                                               nullptr, nullptr,     false,    factor};
      middle.run(count);
    }
    const Pass<Buffer, E, E, Op> closing{buffer,  rest + done, n - done, begin, to + begin,
                                         nullptr, nullptr,     scaled,   factor};
    closing.run(count);
  }
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (to && to != from) __builtin_memcpy(to, from, bytes);
}

void copy_any(void* to, const void* from, const void* ahead, size_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + kCacheLine <= bytes; i += kCacheLine) {
    own_line(target + i + kOwnAhead);
    expect_line(static_cast<const char*>(ahead) + i);
#pragma GCC unroll 4
    for (size_t at = 0; at < kCacheLine; at += kVectorBytes)
      store_raw(target + i + at, load_raw<Vector<uint8_t>>(source + i + at));
  }
  if (i < bytes) __builtin_memcpy(target + i, source + i, bytes - i);
}

// Reduces chunk by chunk; applies `finish` to each and copies it while it is in the first-level cache.
template <class T, class Reduce, class Finish>
HVD_INLINE void reduce_in_chunks(const Job& job, Reduce reduce, Finish finish) {
  constexpr size_t kChunk = kChunkBytes / sizeof(T);
  Job chunk = job;
  chunk.copy = nullptr;
  for (chunk.begin = job.begin; chunk.begin < job.end; chunk.begin = chunk.end) {
    chunk.end = job.end - chunk.begin < kChunk ? job.end : chunk.begin + kChunk;
    reduce(chunk);
    T* const to = static_cast<T*>(job.to) + chunk.begin;
    const size_t count = chunk.end - chunk.begin;
    finish(to, count);
    if (job.copy) copy_bytes(static_cast<T*>(job.copy) + chunk.begin, to, count * sizeof(T));
  }
}

template <class E, class Op>
void reduce_as(const Job& job) {
  using Stored = typename E::Stored;
  if (!job.copy) return reduce_plain<E, Op>(job);
  if constexpr (Op::kHot && E::kFloating) {
    if (job.n - 1 <= kMaxRest) {
      const Pass<E, E, E, Op> only{static_cast<const Stored*>(job.sources[0]) + job.begin,
                                   job.sources + 1,
                                   job.n - 1,
                                   job.begin,
                                   static_cast<Stored*>(job.to) + job.begin,
                                   static_cast<Stored*>(job.copy) + job.begin,
                                   static_cast<const Stored*>(job.ahead) + job.begin,
                                   job.factor != 1.0,
                                   to_factor<E>(job.factor)};
      return only.run(job.end - job.begin);
    }
  }
  reduce_in_chunks<Stored>(job, reduce_plain<E, Op>, [](Stored*, size_t) {});
}

template <class E>
void reduce_floating(ReduceOp op, const Job& job) {
  switch (op) {
    case ReduceOp::kMin:
      return reduce_as<E, Min>(job);
    case ReduceOp::kMax:
      return reduce_as<E, Max>(job);
    case ReduceOp::kProduct:
      return reduce_as<E, Product>(job);
    default:
      return reduce_as<E, Sum>(job);
  }
}

template <class T, class Wrapping>
void reduce_integer(ReduceOp op, const Job& job) {
  switch (op) {
    case ReduceOp::kMin:
      return reduce_as<Plain<T>, Min>(job);
    case ReduceOp::kMax:
      return reduce_as<Plain<T>, Max>(job);
    case ReduceOp::kProduct:
      return reduce_as<Plain<Wrapping>, Product>(job);
    default:
      return reduce_as<Plain<Wrapping>, Sum>(job);
  }
}

// A factor takes a second pass over each chunk while it is in the cache: it is rare for integers.
template <class T, class Wrapping>
void reduce_and_finish(const Reduction& reduction, const Job& job) {
  if (reduction.factor == 1.0) return reduce_integer<T, Wrapping>(reduction.op, job);
  reduce_in_chunks<T>(
      job, [&](const Job& chunk) { reduce_integer<T, Wrapping>(reduction.op, chunk); },
      [&](T* values, size_t count) { multiply_integers(values, count, reduction.factor); });
}

void reduce_bool(ReduceOp op, const Job& job) {
  const bool all = op == ReduceOp::kMin || op == ReduceOp::kProduct;
  return all ? reduce_as<Bool, And>(job) : reduce_as<Bool, Or>(job);
}

void reduce_any(const Reduction& reduction, void* to, void* copy, const void* ahead,
                const void* const* sources, int n, size_t count) {
  Job job{to, copy, ahead, sources, n, 0, count, reduction.factor};
  const bool unchanged = n == 1 && reduction.factor == 1.0;
  if (unchanged && reduction.type != DataType::kBool) {
    copy_bytes(copy, sources[0], count * size_of(reduction.type));
    return copy_bytes(to, sources[0], count * size_of(reduction.type));
  }
  switch (reduction.type) {
    default:
      with_integer_type(reduction.type, [&](auto zero) {
        using T = decltype(zero);
        reduce_and_finish<T, Unsigned<T>>(reduction, job);
      });
      return;
    case DataType::kFloat16:
      return reduce_floating<Float16>(reduction.op, job);
    case DataType::kBfloat16:
      return reduce_floating<Bfloat16>(reduction.op, job);
    case DataType::kFloat32:
      return reduce_floating<Plain<float>>(reduction.op, job);
    case DataType::kFloat64:
      return reduce_floating<Plain<double>>(reduction.op, job);
    case DataType::kBool:
      return reduce_bool(reduction.op, job);
    case DataType::kComplex64:  // complex numbers are only summed; the engine rejects the other operations
      job.end *= 2;
      return reduce_as<Plain<float>, Sum>(job);
    case DataType::kComplex128:
      job.end *= 2;
      return reduce_as<Plain<double>, Sum>(job);
  }
}

}  // namespace
}  // namespace hvd::kernels
