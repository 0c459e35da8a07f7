// Typed arithmetic on plain memory. Every function picks the best instruction set of this machine at run time
// and gives the same bits with each of them, whatever floating-point mode the calling thread has. Pointers
// need only element alignment. `count` is in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace hvd::kernels {

// to[i] = finish(sources[0][i] op sources[1][i] op ... sources[n-1][i]), combined in that order, see
// Reduction. float16 and bfloat16 are combined and finished in float32 and rounded once (to nearest even).
// `to` may be exactly one of the sources, `copy` (or nullptr), which receives the same values, another one.
// `ahead` (or nullptr) is memory that will be read next: it is on its way into the caches while this waits
// for lines of other processors.
void reduce(const Reduction& reduction, void* to, void* copy, const void* const* sources, int n, size_t count,
            const void* ahead = nullptr);

// memcpy between memory that several processors use; `ahead` as above.
void copy(void* to, const void* from, size_t bytes, const void* ahead = nullptr);

// to[i] = from[i] * factor; may be in place. Integers multiply in double and truncate toward zero; bool is
// unchanged; float16, bfloat16 and float32 multiply in float, complex by the real factor.
void scale(DataType type, void* to, const void* from, size_t count, double factor);

// Adasum. dots[0] += a·b, dots[1] += a·a, dots[2] += b·b, in double. Floating types only.
void dots(DataType type, const void* a, const void* b, size_t count, double dots[3]);
// to[i] = ca * a[i] + cb * b[i], in double for float64, in float otherwise; `to` may be a or b. Floating
// types only.
void combine(DataType type, void* to, const void* a, const void* b, size_t count, double ca, double cb);

// The average of n ranks' integers, exact: every rank widens its values, these are summed as any others, and
// the sums are divided. A widened value consists of `per` elements of `type`.
struct Wide {
  DataType type;
  size_t per;
  size_t bytes() const { return size_of(type) * per; }
};
Wide wide_for(DataType type, int n);
void widen(DataType type, int n, void* to, const void* from, size_t count);
// to[i] = sums[i] / n, truncated toward zero. A factor other than 1 is multiplied with before that, in
// double; what does not fit then becomes the nearest value that does.
void divide(DataType type, int n, double factor, void* to, const void* sums, size_t count);

// "avx512", "avx2" or "generic": what this machine uses. Tests may ask for a lesser one; returns whether it
// is possible.
const char* instruction_set();
bool use_instruction_set(const char* name);

}  // namespace hvd::kernels
