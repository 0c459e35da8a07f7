// What one rank may ask for, whatever the others do.
#pragma once

#include <map>

#include "base/status.h"
#include "engine/executor.h"
#include "hvd.h"
#include "wire/messages.h"

namespace hvd {

// The caller's struct: everything that can be told without knowing the process sets.
Status check_request(const hvd_request& request);

// What depends on the process sets, as rank `rank` of `size` knows them. Fills in what the caller left out.
Status complete_request(wire::Request* request, const std::map<int, ProcessSet>& sets, int rank, int size);

}  // namespace hvd
