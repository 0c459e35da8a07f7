// Kernels for x86-64 with AVX-512: a store fills a whole cache line, which counts where the line has just
// come from another processor.
#if defined(__x86_64__)
#include <immintrin.h>

#define HVD_VECTOR_BYTES 64
#include "kernels/table.h"
#include "kernels/vectors.h"

// For the functions that follow, and only those: the headers above must stay usable on any x86-64.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")
#endif

namespace hvd::kernels {
namespace {

inline __m256i load_halves(const uint16_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
// All elements of the masked forms: GCC 12 warns about the others' own header.
constexpr __mmask16 kAllElements = 0xffff;
inline Words widen(const uint16_t* from) {
  return (Words)_mm512_maskz_cvtepu16_epi32(kAllElements, load_halves(from));
}
inline Halves narrow(Words v) { return (Halves)_mm512_maskz_cvtepi32_epi16(kAllElements, (__m512i)v); }
inline Floats float16_to_float(const uint16_t* from) {
  return _mm512_maskz_cvtph_ps(kAllElements, load_halves(from));
}
inline Halves float_to_float16(Floats v) {
  return (Halves)_mm512_maskz_cvtps_ph(kAllElements, v, _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace
}  // namespace hvd::kernels

#include "kernels/all.h"
#include "kernels/target_end.h"

namespace hvd::kernels {
const Table kAvx512Table = table_of_this_file("avx512");
}
#endif
