#include "engine/agreement.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kinds.h"

namespace hvd {
namespace {

using wire::Request;

bool same_types(const Request& a, const Request& b) {
  size_t common = std::min(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < common; ++i)
    if (a.tensors[i].type != b.tensors[i].type) return false;
  return true;
}

// What text(tensor) says of each, as far as there is room for it.
template <class Text>
std::string listed(const Request& request, size_t room, Text text_of) {
  std::string text;
  for (const auto& tensor : request.tensors) {
    if (!text.empty()) text += ", ";
    if (text.size() > room) return text + "...";
    text += text_of(tensor);
  }
  return text;
}

std::string types_text(const Request& request) {
  return listed(request, 100, [](const wire::TensorInfo& tensor) { return name_of(tensor.type); });
}

std::string shapes_text(const Request& request) {
  return listed(request, 200, [](const wire::TensorInfo& tensor) { return shape_text(tensor.shape); });
}

const char* op_name(ReduceOp op) {
  constexpr const char* names[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  return names[static_cast<int>(op)];
}

Status mismatch(const char* what, const Submission& a, const std::string& a_has, const Submission& b,
                const std::string& b_has) {
  return Status::precondition(std::string("Mismatched ") + what + " for '" + a.request->name + "': rank " +
                              std::to_string(a.rank) + " has " + a_has + ", rank " + std::to_string(b.rank) +
                              " has " + b_has + ". All ranks must submit the same " + what +
                              " under one name.");
}

bool same_trailing_dims(const Request& a, const Request& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto& left = a.tensors[i].shape;
    const auto& right = b.tensors[i].shape;
    if (left.size() != right.size()) return false;
    if (!left.empty() && !std::equal(left.begin() + 1, left.end(), right.begin() + 1)) return false;
  }
  return true;
}

std::string factors_text(const Request& request) {
  return "prescale " + std::to_string(request.prescale) + " and postscale " +
         std::to_string(request.postscale);
}

Status check_same(const Submission& first, const Submission& other) {
  const Request& a = *first.request;
  const Request& b = *other.request;
  if (!same_types(a, b)) return mismatch("data types", first, types_text(a), other, types_text(b));
  if (a.kind != b.kind) return mismatch("operations", first, kind_name(a.kind), other, kind_name(b.kind));
  if (!has(a.kind, kRowsDiffer) && a.tensors != b.tensors)
    return mismatch("shapes", first, shapes_text(a), other, shapes_text(b));
  if (a.prescale != b.prescale || a.postscale != b.postscale)
    return mismatch("scale factors", first, factors_text(a), other, factors_text(b));
  if (a.op != b.op) return mismatch("reduce operations", first, op_name(a.op), other, op_name(b.op));
  if (has(a.kind, kRowsDiffer) && !same_trailing_dims(a, b))
    return mismatch("shapes (only the first dimension may differ)", first, shapes_text(a), other,
                    shapes_text(b));
  if (has(a.kind, kHasRoot) && a.root_rank != b.root_rank)
    return mismatch("root ranks", first, std::to_string(a.root_rank), other, std::to_string(b.root_rank));
  if (a.kind == HVD_ADD_PROCESS_SET && a.numbers != b.numbers)
    return Status::invalid("Rank " + std::to_string(first.rank) + " and rank " + std::to_string(other.rank) +
                           " add process sets with different ranks; all ranks must add the same set.");
  if (a.kind == HVD_REMOVE_PROCESS_SET && a.root_rank != b.root_rank)
    return Status::invalid("Rank " + std::to_string(first.rank) + " removes process set " +
                           std::to_string(a.root_rank) + ", rank " + std::to_string(other.rank) +
                           " removes " + std::to_string(b.root_rank) +
                           "; all ranks must remove the same set.");
  return {};
}

Status check_allowed(const Request& request, int members, bool joined) {
  const std::string subject = std::string(kind_name(request.kind)) + " '" + request.name + "'";
  if (joined && !request.tensors.empty() && !has(request.kind, kIncludesJoined))
    return Status::precondition(subject + " is not supported while a rank has joined; only allreduce is.");
  for (const auto& tensor : request.tensors) {
    if (has(request.kind, kByRows) && tensor.shape.empty())
      return Status::precondition(subject + " needs tensors of at least one dimension, got a scalar.");
    if (!has(request.kind, kReduces)) continue;
    if (is_complex(tensor.type) && request.op != ReduceOp::kSum && request.op != ReduceOp::kAverage)
      return Status::aborted(subject + ": " + op_name(request.op) + " is not defined for " +
                             name_of(tensor.type) + "; use Sum or Average.");
    if (request.op == ReduceOp::kAdasum && !is_floating(tensor.type))
      return Status::aborted(subject + ": Adasum needs floating-point tensors, got " + name_of(tensor.type) +
                             ".");
  }
  if (has(request.kind, kSumsOnly) && request.op != ReduceOp::kSum && request.op != ReduceOp::kAverage)
    return Status::aborted(subject + ": " + kind_name(request.kind) + " supports Sum and Average only, not " +
                           op_name(request.op) + ".");
  if (has(request.kind, kReduces) && request.op == ReduceOp::kAdasum && (members & (members - 1)) != 0)
    return Status::aborted(subject + ": Adasum needs a power-of-two number of ranks, there are " +
                           std::to_string(members) + ".");
  return {};
}

// The bytes of `rows` rows of a tensor; false if no number can tell them.
bool bytes_of_rows(const wire::TensorInfo& tensor, int64_t rows, int64_t* bytes) {
  if (__builtin_mul_overflow(rows, static_cast<int64_t>(size_of(tensor.type)), bytes)) return false;
  for (size_t i = 1; i < tensor.shape.size(); ++i)
    if (__builtin_mul_overflow(*bytes, tensor.shape[i], bytes)) return false;
  return true;
}

// Each rank's tensor is of a possible size; what they make together must be, too.
Status check_total(const std::vector<Submission>& submissions) {
  const Request& common = *submissions.front().request;
  if (!has(common.kind, kRowsDiffer)) return {};
  for (const Submission& submission : submissions)
    if (has(common.kind, kHasSplits) && submission.request->numbers.size() != submissions.size())
      return Status::invalid(described(common) + ": rank " + std::to_string(submission.rank) + " has " +
                             std::to_string(submission.request->numbers.size()) + " splits for " +
                             std::to_string(submissions.size()) + " ranks.");
  for (size_t i = 0; i < common.tensors.size(); ++i) {
    int64_t rows = 0, bytes = 0;
    bool possible = true;
    for (const Submission& submission : submissions)
      possible &= !__builtin_add_overflow(rows, submission.request->tensors[i].shape[0], &rows);
    if (!possible || !bytes_of_rows(common.tensors[i], rows, &bytes))
      return Status::aborted(std::string(kind_name(common.kind)) + " '" + common.name +
                             "': the ranks' tensors together have more than 2^63 rows or bytes.");
  }
  return {};
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string described(const wire::Request& request) {
  return std::string(kind_name(request.kind)) + " '" + request.name + "'";
}

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Status check_agreement(const std::vector<Submission>& submissions, int members, bool joined) {
  for (const Submission& other : submissions) {
    Status status = check_same(submissions.front(), other);
    if (!status.ok()) return status;
  }
  Status status = check_allowed(*submissions.front().request, members, joined);
  return status.ok() ? check_total(submissions) : status;
}

wire::Agreement make_agreement(const std::vector<Submission>& submissions) {
  wire::Agreement agreement;
  agreement.common = *submissions.front().request;
  if (!has(agreement.common.kind, kRowsDiffer)) return agreement;
  agreement.first_dims.resize(agreement.common.tensors.size());
  for (const Submission& submission : submissions) {
    for (size_t i = 0; i < agreement.first_dims.size(); ++i)
      agreement.first_dims[i].push_back(submission.request->tensors[i].shape[0]);
  }
  if (!has(agreement.common.kind, kHasSplits)) return agreement;
  agreement.common.numbers.clear();  // every member has its own
  agreement.columns.resize(submissions.size());
  for (size_t member = 0; member < submissions.size(); ++member) {
    wire::Column& column = agreement.columns[member];
    column.member = static_cast<int32_t>(member);
    for (const Submission& sender : submissions) column.rows.push_back(sender.request->numbers[member]);
  }
  return agreement;
}

wire::Request member_request(const wire::Agreement& agreement, int index) {
  wire::Request request = agreement.common;
  auto member = static_cast<size_t>(index);
  for (size_t i = 0; i < agreement.first_dims.size(); ++i)
    request.tensors[i].shape[0] = agreement.first_dims[i][member];
  for (const wire::Column& column : agreement.columns) request.numbers.push_back(column.rows[member]);
  return request;
}

uint64_t request_bytes(const Request& request) {
  uint64_t bytes = 0;
  for (const wire::TensorInfo& tensor : request.tensors)
    bytes += static_cast<uint64_t>(element_count(tensor.shape)) * size_of(tensor.type);
  return bytes;
}

bool differs_by_member(const wire::Operation& operation) {
  return std::any_of(operation.items.begin(), operation.items.end(),
                     [](const wire::Item& item) { return item.fresh && !item.fresh->columns.empty(); });
}

wire::Operation told_to(const std::vector<int>& members, const wire::Operation& operation) {
  wire::Operation told{operation.code, operation.text,   operation.process_set,
                       operation.name, operation.report, {}};
  for (const wire::Item& item : operation.items) {
    wire::Item& copy = told.items.emplace_back();
    copy.cached_id = item.cached_id;
    if (!item.fresh) continue;
    const wire::Agreement& all = *item.fresh;
    copy.fresh = wire::Agreement{all.id, all.common, all.first_dims, {}, all.result};
    if (all.columns.empty()) continue;
    for (int member : members) copy.fresh->columns.push_back(all.columns[static_cast<size_t>(member)]);
  }
  return told;
}

const wire::Column* column_of(const wire::Agreement& agreement, int member) {
  for (const wire::Column& column : agreement.columns)
    if (column.member == member) return &column;
  return nullptr;
}

int64_t agreement_bytes(const wire::Agreement& agreement) {
  int64_t total = 0;
  for (size_t i = 0; i < agreement.common.tensors.size(); ++i) {
    const auto& tensor = agreement.common.tensors[i];
    int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
    if (!agreement.first_dims.empty())
      rows = std::accumulate(agreement.first_dims[i].begin(), agreement.first_dims[i].end(), int64_t{0});
    int64_t bytes = 0;
    if (!bytes_of_rows(tensor, rows, &bytes) || __builtin_add_overflow(total, bytes, &total))
      return std::numeric_limits<int64_t>::max();  // more than any threshold
  }
  return total;
}

}  // namespace hvd
