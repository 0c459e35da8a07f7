// All that a table holds, for the instruction set of the including file; see elements.h for how that works.
#pragma once

#include "kernels/adasum.h"
#include "kernels/integer_average.h"
#include "kernels/reduce.h"
#include "kernels/table.h"

namespace hvd::kernels {
namespace {

constexpr Table table_of_this_file(const char* name) {
  return {name, reduce_any, copy_any, dots_any, combine_any, widen_any, divide_any};
}

}  // namespace
}  // namespace hvd::kernels
