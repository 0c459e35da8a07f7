// TensorFlow's objects, deleted when they go out of scope.
#pragma once

#include <memory>
#include <string>

#include "adapters/tensorflow/c_api.h"

namespace hvd::tensorflow {

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { api().TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

struct DeleteShape {
  void operator()(TF_ShapeHandle* shape) const { api().TF_DeleteShapeHandle(shape); }
};
using Shape = std::unique_ptr<TF_ShapeHandle, DeleteShape>;

class TfStatus {
 public:
  TfStatus() : status_(api().TF_NewStatus()) {}
  TfStatus(TF_Code code, const std::string& text) : TfStatus() {
    api().TF_SetStatus(status_, code, text.c_str());
  }
  ~TfStatus() { api().TF_DeleteStatus(status_); }
  TfStatus(const TfStatus&) = delete;
  TfStatus& operator=(const TfStatus&) = delete;
  bool ok() const { return api().TF_GetCode(status_) == TF_OK; }
  const char* text() const { return api().TF_Message(status_); }
  TF_Status* get() const { return status_; }

 private:
  TF_Status* status_;
};

}  // namespace hvd::tensorflow
