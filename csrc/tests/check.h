// The smallest test harness: TEST(name) { CHECK(...); } and a main() that runs all, or those whose name
// contains argv[1]. CHECK_EXCEPT names those to leave out.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace check {

// It makes everything many times slower, and has nothing to find in what a single thread does.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

inline int run_all(int argc, char** argv) {
  const char* except = std::getenv("CHECK_EXCEPT");
  int ran = 0;
  for (const Case& item : cases()) {
    if (argc > 1 && !std::strstr(item.name, argv[1])) continue;
    if (except && std::strstr(except, item.name)) continue;
    std::printf("%s ...\n", item.name);
    std::fflush(stdout);
    item.run();
    ++ran;
  }
  std::printf("%d passed, 0 failed\n", ran);
  return ran > 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                            \
  static void test_##name();                                  \
  static check::Register register_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (0)
