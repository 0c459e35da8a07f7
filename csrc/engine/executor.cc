#include "engine/executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/float_mode.h"
#include "engine/adasum.h"
#include "engine/agreement.h"
#include "engine/average.h"
#include "kernels/kernels.h"
#include "kernels/neutral.h"
#include "kinds.h"

namespace hvd {
namespace {

using wire::Agreement;
using wire::Request;

void* at(const void* memory, size_t offset) {
  return const_cast<char*>(static_cast<const char*>(memory)) + offset;
}

size_t row_bytes(const wire::TensorInfo& tensor) {
  size_t bytes = size_of(tensor.type);
  for (size_t i = 1; i < tensor.shape.size(); ++i) bytes *= static_cast<size_t>(tensor.shape[i]);
  return bytes;
}

size_t tensor_bytes(const wire::TensorInfo& tensor) {
  return size_of(tensor.type) * static_cast<size_t>(element_count(tensor.shape));
}

// The output of tensor `i`, with so many rows from each rank.
template <typename Count>
Status prepare_rows(const AgreedTask& each, size_t i, const std::vector<Count>& rows) {
  std::vector<int64_t> shape = each.agreement->common.tensors[i].shape;
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  return each.task->prepare_output(i, shape);
}

// The first d0 % n ranks take one row more than the others.
int64_t share_of(int64_t rows, int n, int rank) { return rows / n + (rank < rows % n ? 1 : 0); }

// Average is the sum times 1/size. The truncated average of bool is true where all are. Integers are divided
// exactly, see average.h.
Reduction reduction_for(const Request& request, DataType type, int size) {
  if (request.op != ReduceOp::kAverage) return {type, request.op, request.postscale};
  if (type == DataType::kBool) return {type, ReduceOp::kMin, 1.0};
  return {type, ReduceOp::kSum, request.postscale / size};
}

bool averages_integers(const Request& request, DataType type, int size) {
  return request.op == ReduceOp::kAverage && is_integer(type) && size > 1;
}

// A rank that has joined has a part in an allreduce without having submitted it, and in nothing else that
// moves data. If it submits the name after all, too late to be asked, it may be something else.
Status check_task(const AgreedTask& each) {
  const Request& common = each.agreement->common;
  if (!each.task) {
    if (has(common.kind, kIncludesJoined)) return {};
    return Status::unknown(std::string(kind_name(common.kind)) + " '" + common.name +
                           "' is to run on a rank that has not submitted it.");
  }
  const Request& own = each.task->request;
  if (own.kind == common.kind && (!has(common.kind, kIncludesJoined) || own.tensors == common.tensors))
    return {};
  return Status::unknown(std::string(kind_name(own.kind)) + " '" + own.name +
                         "' was submitted after this rank had joined, and differs from the other ranks' " +
                         kind_name(common.kind) + " of this name.");
}

// What an allreduce does with one tensor.
struct Buffers {
  const void* input;
  void* output;
  size_t bytes;
  DataType type;
  int32_t device;
};

Status adasum(Communicator& communicator, const std::vector<Buffers>& all) {
  for (const Buffers& buffers : all) {
    if (buffers.input != buffers.output && buffers.bytes > 0)
      std::memcpy(buffers.output, buffers.input, buffers.bytes);
    Status status = adasum_in_place(communicator, buffers.type, buffers.output, buffers.bytes);
    if (!status.ok()) return status;
  }
  return {};
}

Status allreduce(const ProcessSet& set, const std::vector<AgreedTask>& tasks) {
  Communicator& communicator = *set.communicator;
  std::vector<Buffers> all;
  std::vector<Memory> neutral;  // stands in for the tensors of a rank that has joined
  const Request& common = tasks.front().agreement->common;
  for (const AgreedTask& each : tasks) {
    const auto& tensors = each.agreement->common.tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      Buffers buffers{nullptr, nullptr, tensor_bytes(tensors[i]), tensors[i].type, HVD_CPU};
      const size_t count = buffers.bytes / size_of(buffers.type);
      if (each.task) {
        Status status = each.task->prepare_output(i, tensors[i].shape);
        if (!status.ok()) return status;
        buffers.input = each.task->tensors[i].input;
        buffers.output = each.task->tensors[i].output;
        buffers.device = each.task->tensors[i].device;
        if (common.prescale != 1.0) {
          kernels::scale(buffers.type, buffers.output, buffers.input, count, common.prescale);
          buffers.input = buffers.output;
        }
      } else {
        neutral.push_back(allocate_memory(buffers.bytes));
        buffers.input = buffers.output = neutral.back().get();
        if (buffers.output == nullptr) return Status::unknown("Out of memory for a joined rank's buffers.");
        kernels::fill_neutral(buffers.type, common.op, buffers.output, count);
      }
      all.push_back(buffers);
    }
  }
  if (common.op == ReduceOp::kAdasum) {
    Status status = adasum(communicator, all);
    for (const Buffers& buffers : all)
      if (status.ok() && common.postscale != 1.0)
        kernels::scale(buffers.type, buffers.output, buffers.output, buffers.bytes / size_of(buffers.type),
                       common.postscale);
    return status;
  }
  // A group may mix types; each type is one pass.
  for (int code = 0; code < kDataTypes; ++code) {
    const auto type = static_cast<DataType>(code);
    Pieces in, out;
    for (const Buffers& buffers : all) {
      if (buffers.type != type) continue;
      in.push_back({at(buffers.input, 0), buffers.bytes, buffers.device});
      out.push_back({buffers.output, buffers.bytes, buffers.device});
    }
    if (in.empty()) continue;
    Status status = averages_integers(common, type, communicator.size())
                        ? average_integers(communicator, type, common.postscale, in, out)
                        : communicator.allreduce(reduction_for(common, type, communicator.size()), in, out);
    if (!status.ok()) return status;
  }
  return {};
}

Status allgather(const ProcessSet& set, const std::vector<AgreedTask>& tasks) {
  Communicator& communicator = *set.communicator;
  const auto n = static_cast<size_t>(communicator.size());
  Pieces in;
  std::vector<Pieces> out(n);
  for (const AgreedTask& each : tasks) {
    const Agreement& agreement = *each.agreement;
    for (size_t i = 0; i < agreement.common.tensors.size(); ++i) {
      const wire::TensorInfo& tensor = agreement.common.tensors[i];
      const auto& rows = agreement.first_dims[i];
      Status status = prepare_rows(each, i, rows);
      if (!status.ok()) return status;
      const TaskTensor& memory = each.task->tensors[i];
      const size_t row = row_bytes(tensor);
      size_t offset = 0;
      for (size_t r = 0; r < n; ++r) {
        const size_t bytes = static_cast<size_t>(rows[r]) * row;
        out[r].push_back({at(memory.output, offset), bytes, memory.device});
        offset += bytes;
      }
      in.push_back({at(memory.input, 0),
                    static_cast<size_t>(rows[static_cast<size_t>(communicator.rank())]) * row,
                    memory.device});
    }
  }
  return communicator.allgather(in, out);
}

Status broadcast(const ProcessSet& set, const std::vector<AgreedTask>& tasks) {
  Communicator& communicator = *set.communicator;
  const std::vector<int>& ranks = set.ranks;
  const int root_rank = tasks.front().agreement->common.root_rank;
  const auto root = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), root_rank) - ranks.begin());
  const bool is_root = communicator.rank() == root;
  Pieces data;
  for (const AgreedTask& each : tasks) {
    for (size_t i = 0; i < each.task->tensors.size(); ++i) {
      const wire::TensorInfo& info = each.agreement->common.tensors[i];
      Status status = each.task->prepare_output(i, info.shape);
      if (!status.ok()) return status;
      const TaskTensor& tensor = each.task->tensors[i];
      const size_t bytes = tensor_bytes(info);
      data.push_back({is_root ? at(tensor.input, 0) : tensor.output, bytes, tensor.device});
      if (is_root && tensor.input != tensor.output && bytes > 0)
        std::memcpy(tensor.output, tensor.input, bytes);
    }
  }
  return communicator.broadcast(data, root);
}

Status alltoall(const ProcessSet& set, const std::vector<AgreedTask>& tasks) {
  Communicator& communicator = *set.communicator;
  const auto n = static_cast<size_t>(communicator.size());
  std::vector<Pieces> in(n), out(n);
  for (const AgreedTask& each : tasks) {
    const Agreement& agreement = *each.agreement;
    const wire::Column* column = column_of(agreement, communicator.rank());
    const std::vector<int32_t>& sending = each.task->request.numbers;
    if (column == nullptr || column->rows.size() != n || sending.size() != n)
      return Status::unknown("Rank 0 has not told what this rank receives in " + described(agreement.common) +
                             ".");
    each.task->received_splits = column->rows;
    const std::vector<int32_t>& received = column->rows;
    for (size_t i = 0; i < agreement.common.tensors.size(); ++i) {
      const wire::TensorInfo& tensor = agreement.common.tensors[i];
      Status status = prepare_rows(each, i, received);
      if (!status.ok()) return status;
      const TaskTensor& memory = each.task->tensors[i];
      const size_t row = row_bytes(tensor);
      size_t from = 0, to = 0;
      for (size_t r = 0; r < n; ++r) {
        const size_t sent = static_cast<size_t>(sending[r]) * row;
        const size_t arriving = static_cast<size_t>(received[r]) * row;
        in[r].push_back({at(memory.input, from), sent, memory.device});
        out[r].push_back({at(memory.output, to), arriving, memory.device});
        from += sent;
        to += arriving;
      }
    }
  }
  return communicator.alltoall(in, out);
}

Status reducescatter(const ProcessSet& set, const std::vector<AgreedTask>& tasks) {
  Communicator& communicator = *set.communicator;
  const Request& common = tasks.front().agreement->common;
  const int n = communicator.size();
  std::vector<Memory> scaled;
  for (int code = 0; code < kDataTypes; ++code) {
    const auto type = static_cast<DataType>(code);
    std::vector<Pieces> in(static_cast<size_t>(n));
    Pieces out;
    for (const AgreedTask& each : tasks) {
      for (size_t i = 0; i < each.task->tensors.size(); ++i) {
        const wire::TensorInfo& tensor = each.agreement->common.tensors[i];
        if (tensor.type != type) continue;
        std::vector<int64_t> shape = tensor.shape;
        shape[0] = share_of(tensor.shape[0], n, communicator.rank());
        Status status = each.task->prepare_output(i, shape);
        if (!status.ok()) return status;
        const TaskTensor& memory = each.task->tensors[i];
        const void* input = memory.input;
        if (common.prescale != 1.0) {
          scaled.push_back(allocate_memory(tensor_bytes(tensor)));
          if (!scaled.back())
            return Status::unknown("Out of memory for the scaled input of '" + common.name + "'.");
          kernels::scale(type, scaled.back().get(), input, tensor_bytes(tensor) / size_of(type),
                         common.prescale);
          input = scaled.back().get();
        }
        const size_t row = row_bytes(tensor);
        size_t offset = 0;
        for (int r = 0; r < n; ++r) {
          const size_t bytes = static_cast<size_t>(share_of(tensor.shape[0], n, r)) * row;
          in[static_cast<size_t>(r)].push_back({at(input, offset), bytes, memory.device});
          offset += bytes;
        }
        out.push_back({memory.output, static_cast<size_t>(shape[0]) * row, memory.device});
      }
    }
    if (out.empty()) continue;
    Status status = averages_integers(common, type, n)
                        ? average_integer_shares(communicator, type, common.postscale, in, out)
                        : communicator.reducescatter(reduction_for(common, type, n), in, out);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace

std::optional<Reduction> plain_reduction(const Request& request, int size) {
  const DataType type = request.tensors.front().type;
  if (request.op == ReduceOp::kAdasum || averages_integers(request, type, size)) return std::nullopt;
  return reduction_for(request, type, size);
}

Executor::Executor(Transport* transport, int rank, int size) : transport_(transport), rank_(rank) {
  ProcessSet& world = sets_[0];
  for (int r = 0; r < size; ++r) world.ranks.push_back(r);
  world.communicator = transport->open(0, world.ranks);
}

Status Executor::run(const std::vector<AgreedTask>& tasks) {
  const FloatMode mode;  // for what is computed here; the kernels may run on other threads, too
  for (const AgreedTask& each : tasks) {
    Status status = check_task(each);
    if (!status.ok()) return status;
  }
  const Request& common = tasks.front().agreement->common;
  const ProcessSet& set = sets_.at(common.process_set);
  switch (common.kind) {
    case HVD_ALLREDUCE:
      return allreduce(set, tasks);
    case HVD_ALLGATHER:
      return allgather(set, tasks);
    case HVD_BROADCAST:
      return broadcast(set, tasks);
    case HVD_ALLTOALL:
      return alltoall(set, tasks);
    case HVD_REDUCESCATTER:
      return reducescatter(set, tasks);
    case HVD_ADD_PROCESS_SET:
      return open_process_set(tasks.front());
    default:  // barrier, join, remove: that all ranks agreed is all there is to it
      if (tasks.front().task) tasks.front().task->result = tasks.front().agreement->result;
      return {};
  }
}

Status Executor::open_process_set(const AgreedTask& each) {
  const Agreement& agreement = *each.agreement;
  Communicator& world = *sets_.at(0).communicator;
  const auto id = static_cast<int>(agreement.result);
  Status status = world.barrier();
  if (!status.ok()) return status;
  transport_->reset(id);
  status = world.barrier();
  if (!status.ok()) return status;
  opened_ = {};
  opened_.ranks.assign(agreement.common.numbers.begin(), agreement.common.numbers.end());
  if (std::binary_search(opened_.ranks.begin(), opened_.ranks.end(), rank_))
    opened_.communicator = transport_->open(id, opened_.ranks);
  each.task->result = agreement.result;
  return {};
}

void Executor::commit_process_set(const AgreedTask& each) {
  const auto id = static_cast<int>(each.agreement->result);
  if (each.agreement->common.kind == HVD_ADD_PROCESS_SET) {
    sets_[id] = std::move(opened_);
  } else if (each.agreement->common.kind == HVD_REMOVE_PROCESS_SET) {
    sets_.erase(id);
  }
}

}  // namespace hvd
