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

  // The same, as the fault of this rank; `silent`: it has not ended, but says nothing.
  Status blame(int rank, bool silent = false) && {
    culprit_ = rank;
    silent_ = silent;
    return std::move(*this);
  }

  bool ok() const noexcept { return code_ == HVD_OK; }
  int code() const noexcept { return code_; }
  const std::string& text() const noexcept { return text_; }
  int culprit() const noexcept { return culprit_; }  // -1: no rank's that is known
  bool silent() const noexcept { return silent_; }

 private:
  int code_ = HVD_OK;
  std::string text_;
  int culprit_ = -1;
  bool silent_ = false;
};

}  // namespace hvd
