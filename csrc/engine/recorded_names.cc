#include "engine/recorded_names.h"

#include <algorithm>
#include <limits>

#include "hvd.h"

namespace hvd {

uint32_t RecordedNames::look_up(const wire::Request& request, uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t number = of_text(request);
  if (id != 0) by_id_[id % by_id_.size()].store(uint64_t{id} << 32 | number, std::memory_order_release);
  return number;
}

uint32_t RecordedNames::of_text(const wire::Request& request) {
  const int32_t kind = request.kind == HVD_ALLREDUCE && request.op == ReduceOp::kAdasum
                           ? int32_t{RecordedName::kAdasum}
                           : request.kind;
  auto found = operations_.find(request.name);
  if (found != operations_.end()) {
    for (const Variant& variant : found->second)
      if (variant.kind == kind && variant.tensors == request.tensors) return variant.number;
    if (found->second.size() >= kVariants) return found->second.back().number;
  }
  RecordedName name;
  name.kind = static_cast<uint8_t>(kind);
  name.tensors =
      static_cast<uint16_t>(std::min<size_t>(request.tensors.size(), std::numeric_limits<uint16_t>::max()));
  if (!request.tensors.empty()) {
    name.type = static_cast<uint8_t>(request.tensors.front().type);
    name.shape = request.tensors.front().shape;
  }
  name.text = request.name;
  const uint32_t number = add(std::move(name));
  if (number != 0) operations_[request.name].push_back({number, kind, request.tensors});
  return number;
}

uint32_t RecordedNames::of(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = operations_.find(name);
  return found == operations_.end() ? 0 : found->second.front().number;
}

uint32_t RecordedNames::of_mark(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = marks_.find(name);
  if (found != marks_.end()) return found->second;
  RecordedName mark;
  mark.mark = true;
  mark.text = name;
  const uint32_t number = add(std::move(mark));
  if (number != 0) marks_.emplace(name, number);
  return number;
}

std::vector<RecordedName> RecordedNames::since(size_t count) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {names_.begin() + static_cast<ptrdiff_t>(count), names_.end()};
}

uint32_t RecordedNames::add(RecordedName name) {
  if (names_.size() == kNames) return 0;
  name.number = static_cast<uint32_t>(names_.size()) + 1;
  names_.push_back(std::move(name));
  return names_.back().number;
}

}  // namespace hvd
