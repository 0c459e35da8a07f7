// What a node of the graph says about its operation.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

// Whether a thread stays with an operation: the more seldom, the more often that was not worth it.
class Patience {
 public:
  bool stays() { return skipped_.load() == 0 || skipped_.fetch_sub(1) <= 0; }
  void learn(bool worth_it) {
    constexpr int kMost = 64;
    pause_ = worth_it ? 0 : std::clamp(2 * pause_.load(), 1, kMost);
    skipped_ = pause_.load();
  }

 private:
  std::atomic<int> pause_{0}, skipped_{0};
};

struct Attributes {
  const char* op_type = "";
  int32_t kind = 0;
  std::string name;  // the operation's, by which ranks match it
  int32_t process_set = 0;
  int32_t reduce_op = 0;
  int32_t root_rank = 0;
  bool even_splits = false;
  double prescale = 1.0, postscale = 1.0;
  std::shared_ptr<Patience> patience;  // of an operation that TensorFlow's thread stays with
};

// Reads those that the kind of operation has; reports failures to `construction`.
Attributes read_attributes(TF_OpKernelConstruction* construction, const char* op_type, int32_t kind);

}  // namespace hvd::tensorflow
