// The layouts in adapters/libstdcxx.h against the library itself, if this compiler has it.
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "adapters/libstdcxx.h"
#include "check.h"

using namespace hvd::libstdcxx;

#if defined(__GLIBCXX__)

namespace {

static_assert(sizeof(std::string) == sizeof(ConstString));
static_assert(sizeof(std::optional<std::string>) == sizeof(OptionalString));
static_assert(sizeof(std::function<void()>) == sizeof(Function));

// An object seen as one of another type. The compiler must not know, as it does not in TensorFlow.
template <typename To, typename From>
To* seen_as(From* from) {
  void* address = const_cast<std::remove_const_t<From>*>(from);
  asm volatile("" : "+r"(address) : : "memory");
  return static_cast<To*>(address);
}

const char* const kTexts[] = {"", "short", "longer than what a string keeps within itself"};

// Counts how many of it there are, and calls. A std::function has no room for it within itself.
struct Counted {
  int *alive, *calls;
  std::array<char, 64> more{};
  Counted(int* alive, int* calls) : alive(alive), calls(calls) { ++*alive; }
  Counted(const Counted& other) : alive(other.alive), calls(other.calls) { ++*alive; }
  ~Counted() { --*alive; }
  void operator()() const { ++*calls; }
};

void nothing() {}

}  // namespace

TEST(a_text_is_read_as_a_string) {
  for (const char* text : kTexts) {
    const ConstString made(text);
    const auto* seen = seen_as<const std::string>(&made);
    CHECK(*seen == text && std::string(*seen) == text);
  }
}

TEST(an_empty_optional_gets_a_text) {
  for (const char* text : kTexts) {
    std::optional<std::string> empty;
    seen_as<OptionalString>(&empty)->set(text);
    auto* seen = seen_as<std::optional<std::string>>(&empty);
    CHECK(seen->has_value() && **seen == text);
    **seen += ", which its owner may change";
  }
}

TEST(a_copy_of_a_function_outlives_it) {
  int alive = 0, calls = 0;
  {
    auto original = std::make_unique<std::function<void()>>(Counted(&alive, &calls));
    const Function copy(seen_as<const void>(original.get()));
    CHECK(alive == 2);
    original.reset();
    CHECK(alive == 1);
    copy();
    CHECK(calls == 1);
  }
  CHECK(alive == 0);
}

TEST(a_copy_of_a_small_function_is_called) {
  int calls = 0;
  const std::function<void()> original = [&calls] { ++calls; };
  Function(seen_as<const void>(&original))();
  CHECK(calls == 1);
}

TEST(the_code_of_a_function_is_found) {
  const auto code_of = [](const std::function<void()>& f) {
    return Function::code_of(seen_as<const void>(&f));
  };
  const auto code = code_of(nothing), same = code_of(nothing), other = code_of([] {});
  CHECK(code.manage == same.manage && code.call == same.call);
  CHECK(code.manage != other.manage && code.call != other.call);
}

#else

TEST(another_library_has_nothing_to_compare) {}

#endif

int main(int argc, char** argv) { return check::run_all(argc, argv); }
