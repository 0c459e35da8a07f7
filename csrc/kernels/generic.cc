// Kernels for any machine: 16-byte vectors (SSE2 on x86-64, NEON on aarch64).
#define HVD_VECTOR_BYTES 16
#include "kernels/table.h"
#include "kernels/vectors.h"
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd::kernels {
namespace {

typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));

#if defined(__x86_64__)
// GCC 12 converts these vectors element by element unless told how.
inline Words widen(const uint16_t* from) {
  return (Words)_mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)),
                                   _mm_setzero_si128());
}
// The words must fit in 16 bits; sign-extended, because SSE2 only packs signed words.
inline Halves narrow(Words v) {
  const __m128i extended = _mm_srai_epi32(_mm_slli_epi32((__m128i)v, 16), 16);
  const long long packed = _mm_cvtsi128_si64(_mm_packs_epi32(extended, extended));
  Halves halves;
  __builtin_memcpy(&halves, &packed, sizeof halves);
  return halves;
}
#else
inline Words widen(const uint16_t* from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return __builtin_convertvector(halves, Words);
}
inline Halves narrow(Words v) { return __builtin_convertvector(v, Halves); }
#endif

// The same values as the F16C instructions, and the same NaNs once they have been stored again.
// Magnitudes are compared as signed integers: SSE2 has no other comparison.
inline Floats float16_to_float(const uint16_t* from) {
  const Words bits = widen(from);
  const Ints magnitude = (Ints)(bits & 0x7fff);
  // A subnormal is a small multiple of 2^-24. By integer conversion: flush-to-zero modes cannot touch it.
  const Ints subnormal = (Ints)(__builtin_convertvector(magnitude, Floats) * 0x1p-24f);
  const Ints normal = (magnitude << 13) + (112 << 23);  // 112: the difference of the exponents' biases
  const Ints special = (magnitude << 13) | 0x7f800000;  // infinity and NaN
  const Ints finite = magnitude < 0x0400 ? subnormal : normal;
  return (Floats)((Words)(magnitude < 0x7c00 ? finite : special) | (bits & 0x8000) << 16);
}

inline Halves float_to_float16(Floats v) {
  const Words bits = (Words)v;
  const Ints magnitude = (Ints)(bits & 0x7fffffff);
  // Adding 0.5 moves the last bit of a float16 subnormal to the last bit of a float32, so the addition
  // rounds.
  const Ints subnormal = (Ints)((Floats)magnitude + 0.5f) - 0x3f000000;
  // What is no longer finite in float16 is clamped to 2^16, which this turns into infinity.
  const Ints clamped = magnitude < 0x47800000 ? magnitude : magnitude * 0 + 0x47800000;
  const Ints normal = (clamped - (112 << 23) + 0xfff + ((clamped >> 13) & 1)) >> 13;
  const Ints number = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
  const Ints nan = 0x7e00 | ((magnitude >> 13) & 0x1ff);
  return narrow((Words)(magnitude > 0x7f800000 ? nan : number) | ((bits >> 16) & 0x8000));
}

}  // namespace
}  // namespace hvd::kernels

#include "kernels/all.h"

namespace hvd::kernels {
const Table kGenericTable = table_of_this_file("generic");
}
