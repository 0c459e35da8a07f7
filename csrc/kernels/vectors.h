// The vectors that the including file computes with, of HVD_VECTOR_BYTES each; see elements.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/integer_types.h"  // here: before a file says for which instruction set it compiles

namespace hvd::kernels {
namespace {

constexpr size_t kVectorBytes = HVD_VECTOR_BYTES;
typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));  // as many as there are Floats

}  // namespace
}  // namespace hvd::kernels
