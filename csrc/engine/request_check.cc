#include "engine/request_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kinds.h"

namespace hvd {
namespace {

// How many rows go to each of `ranks` ranks; without numbers of the caller's as many to each.
Status complete_splits(wire::Request& request, size_t ranks, const std::string& subject) {
  const auto n = static_cast<int64_t>(ranks);
  const auto& shape = request.tensors.front().shape;
  if (std::any_of(request.tensors.begin(), request.tensors.end(),
                  [](const wire::TensorInfo& tensor) { return tensor.shape.empty(); })) {
    request.numbers.assign(ranks, 0);  // refused by all ranks together
    return {};
  }
  if (request.numbers.empty()) {
    if (shape[0] % n != 0)
      return Status::invalid(subject + ": without splits the first dimension (" + std::to_string(shape[0]) +
                             ") must be divisible by the number of ranks (" + std::to_string(n) + ").");
    constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
    if (shape[0] / n > kLimit)
      return Status::invalid(subject + ": alltoall would send " + std::to_string(shape[0] / n) +
                             " rows to each rank, the limit is " + std::to_string(kLimit) +
                             "; give the tensor fewer and longer rows.");
    request.numbers.assign(ranks, static_cast<int32_t>(shape[0] / n));
  }
  if (static_cast<int64_t>(request.numbers.size()) != n)
    return Status::invalid(subject + ": splits has " + std::to_string(request.numbers.size()) +
                           " entries, there are " + std::to_string(n) + " ranks.");
  int64_t sum = 0;
  for (int32_t split : request.numbers) {
    if (split < 0) return Status::invalid(subject + ": splits must not be negative.");
    sum += split;
  }
  for (const wire::TensorInfo& tensor : request.tensors)
    if (sum > tensor.shape[0])
      return Status::invalid(subject + ": splits add up to " + std::to_string(sum) +
                             ", more than the first dimension (" + std::to_string(tensor.shape[0]) + ").");
  return {};
}

}  // namespace

Status check_request(const hvd_request& request) {
  if (request.name == nullptr || request.name[0] == 0) return Status::invalid("An operation needs a name.");
  const std::string subject = "'" + std::string(request.name) + "'";
  if (!is_kind(request.kind))
    return Status::invalid(subject + ": unknown kind of operation " + std::to_string(request.kind) + ".");
  if (has(request.kind, kHasTensors) != (request.tensor_count > 0))
    return Status::invalid(subject + ": wrong number of tensors.");
  if (request.reduce_op < HVD_AVERAGE || request.reduce_op > HVD_PRODUCT)
    return Status::invalid(subject + ": unknown reduce operation " + std::to_string(request.reduce_op) + ".");
  for (int32_t i = 0; i < request.tensor_count; ++i) {
    const hvd_tensor& tensor = request.tensors[i];
    if (tensor.dtype < 0 || tensor.dtype >= kDataTypes)
      return Status::invalid(subject + ": unknown data type " + std::to_string(tensor.dtype) + ".");
    if (tensor.device != HVD_CPU)
      return Status::invalid(subject + ": a tensor is in the memory of device " +
                             std::to_string(tensor.device) + ":" + std::to_string(tensor.device_index) +
                             ", but only CPU tensors are supported: copy it to the CPU first.");
    int64_t bytes = static_cast<int64_t>(size_of(static_cast<DataType>(tensor.dtype)));
    for (int32_t d = 0; d < tensor.ndim; ++d)
      if (tensor.shape[d] < 0 || __builtin_mul_overflow(bytes, tensor.shape[d], &bytes))
        return Status::invalid(subject + ": impossible shape.");
  }
  return {};
}

Status complete_request(wire::Request* completed, const std::map<int, ProcessSet>& sets, int rank, int size) {
  wire::Request& request = *completed;
  const std::string subject = "'" + request.name + "'";
  if (request.kind == HVD_REMOVE_PROCESS_SET) {
    // Removing is an operation of all ranks; the set it is about travels in root_rank.
    request.root_rank = request.process_set;
    request.process_set = 0;
  }
  if (has(request.kind, kOfAllRanks) && request.process_set != 0)
    return Status::invalid(subject + ": " + kind_name(request.kind) +
                           " is an operation of all ranks, not of process set " +
                           std::to_string(request.process_set) + ".");
  auto found = sets.find(request.process_set);
  if (found == sets.end())
    return Status::invalid(subject + ": there is no process set " + std::to_string(request.process_set) +
                           ".");
  const std::vector<int>& ranks = found->second.ranks;
  if (!found->second.communicator)
    return Status::invalid(subject + ": rank " + std::to_string(rank) + " is not in process set " +
                           std::to_string(request.process_set) + ".");
  if (has(request.kind, kHasRoot) && !std::binary_search(ranks.begin(), ranks.end(), request.root_rank))
    return Status::invalid(subject + ": root rank " + std::to_string(request.root_rank) +
                           " is not in process set " + std::to_string(request.process_set) +
                           " (roots are global ranks).");
  if (request.kind == HVD_ADD_PROCESS_SET) {
    const auto& numbers = request.numbers;
    if (numbers.empty() || numbers.front() < 0 || numbers.back() >= size ||
        std::adjacent_find(numbers.begin(), numbers.end(), [](int a, int b) { return a >= b; }) !=
            numbers.end())
      return Status::invalid(subject + ": a process set needs different ranks between 0 and " +
                             std::to_string(size - 1) + ".");
  }
  return has(request.kind, kHasSplits) ? complete_splits(request, ranks.size(), subject) : Status();
}

}  // namespace hvd
