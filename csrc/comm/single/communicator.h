// A communicator of one rank. Every transport uses it for process sets with a single member.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace hvd {

std::unique_ptr<Communicator> make_single_communicator();

}  // namespace hvd
