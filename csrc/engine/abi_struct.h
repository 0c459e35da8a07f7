// Structs of callers that were compiled with an older or a newer hvd.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "base/status.h"

namespace hvd {

// Copies a caller's struct to *known, which has the defaults of what the caller may lack. `least` is the
// size below which no version of it ever was.
template <class T>
Status take_struct(const T* given, const char* name, size_t least, T* known) {
  const size_t size = given->struct_size;
  auto refuse = [&](const std::string& why) {
    return Status::invalid(std::string(name) + " of " + std::to_string(size) + " bytes: " + why);
  };
  if (size < least)
    return refuse("struct_size must be at least " + std::to_string(least) + ", or sizeof(" + name + ").");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(size, sizeof(T)), bytes + size, [](unsigned char byte) { return byte; }))
    return refuse("its caller is newer and uses what this library, which knows " + std::to_string(sizeof(T)) +
                  " bytes, does not have; install the same version.");
  std::memcpy(known, given, std::min(size, sizeof(T)));
  known->struct_size = sizeof(T);
  return {};
}

}  // namespace hvd
