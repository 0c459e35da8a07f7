// The outcome of an operation: one of the HVD_* codes and, on failure, a text that names the thing.
#pragma once

#include <string>
#include <utility>

#include "hvd.h"

namespace hvd {

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(int code, std::string text) : code_(code), text_(std::move(text)) {}
  static Status invalid(std::string text) { return {HVD_INVALID_ARGUMENT, std::move(text)}; }
  static Status precondition(std::string text) { return {HVD_FAILED_PRECONDITION, std::move(text)}; }
  static Status aborted(std::string text) { return {HVD_ABORTED, std::move(text)}; }
  static Status unknown(std::string text) { return {HVD_UNKNOWN, std::move(text)}; }

  bool ok() const noexcept { return code_ == HVD_OK; }
  int code() const noexcept { return code_; }
  const std::string& text() const noexcept { return text_; }

 private:
  int code_ = HVD_OK;
  std::string text_;
};

}  // namespace hvd
