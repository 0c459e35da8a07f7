// Ends what avx2.cc and avx512.cc have begun: the functions that follow are for any x86-64 again. No guard,
// as it is a part of the file that includes it.
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
