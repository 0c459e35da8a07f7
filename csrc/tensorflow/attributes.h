// What a node of the graph says about its operation.
#pragma once

#include <string>

#include "tensorflow/c_api.h"

namespace hvd::tensorflow {

struct Attributes {
  const char* op_type = "";
  int32_t kind = 0;
  std::string name;  // the operation's, by which ranks match it
  int32_t process_set = 0;
  int32_t reduce_op = 0;
  int32_t root_rank = 0;
  bool even_splits = false;
  double prescale = 1.0, postscale = 1.0;
};

// Reads those that the kind of operation has; reports failures to `construction`.
Attributes read_attributes(TF_OpKernelConstruction* construction, const char* op_type, int32_t kind);

}  // namespace hvd::tensorflow
