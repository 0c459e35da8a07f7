// The average of integers: the exact sum, divided by the number of ranks and truncated toward zero, although
// the sum may not fit in the type. On any communicator, as the values are summed in a wider form (see
// kernels/kernels.h); in chunks, so that the memory for it is bounded.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace hvd {

// The arguments are those of Communicator::allreduce() and reducescatter(); `factor` is applied to the
// average.
Status average_integers(Communicator& communicator, DataType type, double factor, const Pieces& in,
                        const Pieces& out);
Status average_integer_shares(Communicator& communicator, DataType type, double factor,
                              const std::vector<Pieces>& in, const Pieces& out);

}  // namespace hvd
