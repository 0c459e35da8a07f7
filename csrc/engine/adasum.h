// Adasum (arXiv:2006.02924): a and b become (1 - a·b/2|a|²)·a + (1 - a·b/2|b|²)·b, pairwise up a binary tree
// of ranks.
#pragma once

#include "comm/communicator.h"

namespace hvd {

// In place on one tensor; the number of ranks is a power of two. All ranks end with the same bits.
Status adasum_in_place(Communicator& communicator, DataType type, void* data, size_t bytes);

}  // namespace hvd
