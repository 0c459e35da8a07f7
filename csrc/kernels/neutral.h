// What a rank contributes that has no values of its own.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace hvd::kernels {

// Fills `to` with the value that changes no other by `op`, not even the sign of a zero. There is none for the
// average of bool, which is false where a rank has nothing: false.
void fill_neutral(DataType type, ReduceOp op, void* to, size_t count);

}  // namespace hvd::kernels
