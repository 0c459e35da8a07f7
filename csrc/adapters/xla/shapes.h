// What the calls from compiled programs know of shapes: XLA fixed those of the results when it compiled them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace hvd::xla {

using Shape = std::vector<int64_t>;

inline std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t dimension : shape) text += (text.empty() ? "" : ", ") + std::to_string(dimension);
  return "[" + text + "]";
}

inline std::string other_shape(const Shape& compiled, const Shape& made) {
  return "compiled for a result of shape " + text_of(compiled) + ", but the tensors of the ranks make " +
         text_of(made);
}

// Memory for results that do not fit where XLA wants them. The operation still runs, so that no other rank
// waits.
class SpareMemory {
 public:
  void* of(const Shape& shape) {
    constexpr size_t kLargestElement = 16;  // bytes
    size_t bytes = kLargestElement;
    for (const int64_t dimension : shape) bytes *= static_cast<size_t>(dimension);
    kept_.emplace_back(new (std::nothrow) char[bytes + 1]);
    return kept_.back().get();
  }

 private:
  std::vector<std::unique_ptr<char[]>> kept_;
};

}  // namespace hvd::xla
