// Kernels for x86-64 with AVX2 and F16C.
#if defined(__x86_64__)
#include <immintrin.h>

#define HVD_VECTOR_BYTES 32
#include "kernels/table.h"
#include "kernels/vectors.h"

// For the functions that follow, and only those: the headers above must stay usable on any x86-64.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace hvd::kernels {
namespace {

inline __m128i load_halves(const uint16_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline Words widen(const uint16_t* from) { return (Words)_mm256_cvtepu16_epi32(load_halves(from)); }
// The words must fit in 16 bits.
inline Halves narrow(Words v) {
  const __m256i words = (__m256i)v;
  return (Halves)_mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
inline Floats float16_to_float(const uint16_t* from) { return _mm256_cvtph_ps(load_halves(from)); }
inline Halves float_to_float16(Floats v) { return (Halves)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }

}  // namespace
}  // namespace hvd::kernels

#include "kernels/all.h"
#include "kernels/target_end.h"

namespace hvd::kernels {
const Table kAvx2Table = table_of_this_file("avx2");
}
#endif
