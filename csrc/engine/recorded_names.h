// Numbers for the names that records refer to: each name is written once.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/record.h"
#include "wire/messages.h"

namespace hvd {

class RecordedNames {
 public:
  // The number of an operation's name; 0 if there are too many names already.
  uint32_t of(const wire::Request& request);
  // Of an operation that came before, of which only the name is known; 0 if it did not.
  uint32_t of(const std::string& name) const;
  uint32_t of_mark(const std::string& name);
  // Those that are new since the last call.
  std::vector<RecordedName> take_fresh() { return std::exchange(fresh_, {}); }

 private:
  // A name comes with other shapes now and then; each that was seen has a number, up to a few.
  static constexpr size_t kVariants = 4;
  // Names that contain a counter never come back; they must not fill the memory.
  static constexpr uint32_t kNames = 65535;
  struct Variant {
    uint32_t number;
    int32_t kind;
    std::vector<wire::TensorInfo> tensors;
  };

  uint32_t add(RecordedName name);

  std::unordered_map<std::string, std::vector<Variant>> operations_;
  std::unordered_map<std::string, uint32_t> marks_;
  std::vector<RecordedName> fresh_;
  uint32_t last_ = 0;
};

}  // namespace hvd
