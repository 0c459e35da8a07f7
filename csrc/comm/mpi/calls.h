// The few MPI functions that the engine needs, looked up in the MPI that the process has loaded: no header
// and no library of any MPI is needed to build this.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/traffic.h"
#include "hvd.h"

namespace hvd {

// Room for a request handle of either width; MPI fills it in and takes it back.
struct MpiRequest {
  alignas(8) unsigned char handle[8] = {};
};

// Each returns MPI's code, 0 for success. The memory belongs to MPI until test() says that it is done.
class MpiCalls {
 public:
  virtual ~MpiCalls() = default;
  virtual int send(const void* data, size_t bytes, int rank, MpiRequest* request) = 0;
  virtual int receive(void* data, size_t bytes, int rank, MpiRequest* request) = 0;
  virtual int test(MpiRequest* request, bool* done) = 0;
  virtual std::string describe(int code) = 0;

  Traffic traffic;  // of those who call
};

// Null if the handles have a width that no MPI has.
std::unique_ptr<MpiCalls> make_mpi_calls(const hvd_mpi& mpi);

}  // namespace hvd
