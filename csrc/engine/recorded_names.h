// Numbers for the names that records refer to: each name is written once to a file. They stay the same as
// long as the engine lives. For any thread.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/record.h"
#include "wire/messages.h"

namespace hvd {

class RecordedNames {
 public:
  // The number of an operation's name; 0 if there are too many names already. With the id of a remembered
  // agreement (0: none) it is looked up by text only once.
  uint32_t of(const wire::Request& request, uint32_t id) {
    if (const uint32_t number = of_id(id)) return number;
    return look_up(request, id);
  }
  // Of a remembered agreement; 0 if it has to be looked up.
  uint32_t of_id(uint32_t id) const {
    const uint64_t place = by_id_[id % by_id_.size()].load(std::memory_order_acquire);
    return place >> 32 == id ? static_cast<uint32_t>(place) : 0;
  }
  // Of an operation that came before, of which only the name is known; 0 if it did not.
  uint32_t of(const std::string& name) const;
  uint32_t of_mark(const std::string& name);
  // All but the first `count`, in the order of their numbers, which begin with 1.
  std::vector<RecordedName> since(size_t count) const;

 private:
  // A name comes with other shapes now and then; each that was seen has a number, up to a few.
  static constexpr size_t kVariants = 4;
  // Names that contain a counter never come back; they must not fill the memory.
  static constexpr size_t kNames = 65535;
  struct Variant {
    uint32_t number;
    int32_t kind;
    std::vector<wire::TensorInfo> tensors;
  };

  uint32_t look_up(const wire::Request& request, uint32_t id);
  uint32_t of_text(const wire::Request& request);
  uint32_t add(RecordedName name);

  // The id and the number of what was looked up last in each place. An id is never used twice.
  std::array<std::atomic<uint64_t>, 2048> by_id_{};
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<std::string, std::vector<Variant>> operations_;
  std::unordered_map<std::string, uint32_t> marks_;
  std::vector<RecordedName> names_;  // [number - 1]
};

}  // namespace hvd
