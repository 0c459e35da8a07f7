// What each instruction set provides. dispatch.cc picks one table at run time.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace hvd::kernels {

// See kernels.h for the contracts. Every table holds the same templates, compiled for another vector width.
struct Table {
  const char* name;
  void (*reduce)(const Reduction& reduction, void* to, void* copy, const void* ahead,
                 const void* const* sources, int n, size_t count);
  void (*copy)(void* to, const void* from, const void* ahead, size_t bytes);
  void (*dots)(DataType type, const void* a, const void* b, size_t count, double dots[3]);
  void (*combine)(DataType type, void* to, const void* a, const void* b, size_t count, double ca, double cb);
  void (*widen)(DataType type, DataType wide, int n, void* to, const void* from, size_t count);
  void (*divide)(DataType type, DataType wide, int n, double factor, void* to, const void* sums,
                 size_t count);
};

extern const Table kGenericTable;
#if defined(__x86_64__)
extern const Table kAvx2Table;
extern const Table kAvx512Table;
#endif

}  // namespace hvd::kernels
