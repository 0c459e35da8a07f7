// Do the ranks' requests for one operation fit together? Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "wire/messages.h"

namespace hvd {

struct Submission {
  int rank;  // global
  const wire::Request* request;
};

std::string shape_text(const std::vector<int64_t>& shape);

// Checks in the order users rely on: dtype, kind, shape, scale factors, reduce op, trailing dimensions, root
// rank; then whether the operation is allowed at all for `members` ranks of which `joined` have joined.
Status check_agreement(const std::vector<Submission>& submissions, int members, bool joined);

// The agreement of submissions that passed the check, one for each member in order.
wire::Agreement make_agreement(const std::vector<Submission>& submissions);

// What member `index` submitted when `agreement`, with all columns, was made.
wire::Request member_request(const wire::Agreement& agreement, int index);

// Columns of an alltoall: all of them have n^2 numbers, and each member needs n.
bool differs_by_member(const wire::Operation& operation);
// `operation` with the columns of `members` (indices) only.
wire::Operation told_to(const std::vector<int>& members, const wire::Operation& operation);
// nullptr if it is not there.
const wire::Column* column_of(const wire::Agreement& agreement, int member);

// For messages: its kind and name.
std::string described(const wire::Request& request);

int64_t element_count(const std::vector<int64_t>& shape);
// Of all tensors of one rank.
uint64_t request_bytes(const wire::Request& request);
// Bytes an agreement moves, as counted against the fusion threshold.
int64_t agreement_bytes(const wire::Agreement& agreement);

}  // namespace hvd
