#include "base/json.h"

#include <cstddef>
#include <cstdio>

namespace hvd {
namespace {

// How many bytes the character at `at` has; 0 if it is none.
size_t character(const std::string& text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t size = first < 0x80   ? 1
                      : first < 0xC2 ? 0
                      : first < 0xE0 ? 2
                      : first < 0xF0 ? 3
                      : first < 0xF5 ? 4
                                     : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  if (size < 3) return size;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  const bool allowed = !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F) &&
                       !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
  return allowed ? size : 0;
}

}  // namespace

std::string json_text(const std::string& text) {
  std::string result = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t size = character(text, at);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      result += escaped;
    } else if (size == 0) {
      result += '?';
    } else {
      result.append(text, at, size);
    }
    at += size == 0 ? 1 : size;
  }
  return result + "\"";
}

}  // namespace hvd
