#include "engine/recorded_names.h"

#include <algorithm>
#include <limits>

#include "hvd.h"

namespace hvd {

uint32_t RecordedNames::of(const wire::Request& request) {
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
  auto found = operations_.find(name);
  return found == operations_.end() ? 0 : found->second.front().number;
}

uint32_t RecordedNames::of_mark(const std::string& name) {
  auto found = marks_.find(name);
  if (found != marks_.end()) return found->second;
  RecordedName mark;
  mark.mark = true;
  mark.text = name;
  const uint32_t number = add(std::move(mark));
  if (number != 0) marks_.emplace(name, number);
  return number;
}

uint32_t RecordedNames::add(RecordedName name) {
  if (last_ == kNames) return 0;
  name.number = ++last_;
  fresh_.push_back(std::move(name));
  return last_;
}

}  // namespace hvd
