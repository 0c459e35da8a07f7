// Log lines of the native threads: "[time] [rank] LEVEL: text", INFO and below to stdout, the rest to stderr.
#pragma once

#include <string>

#include "hvd.h"

namespace hvd {

class Log {
 public:
  Log(int level, bool hide_time, int rank) : level_(level), hide_time_(hide_time), rank_(rank) {}
  // Whether a message of this level is wanted: ask before making one that is not rare.
  bool at(int level) const { return level >= level_; }
  void write(int level, const std::string& text) const;
  void warning(const std::string& text) const { write(HVD_LOG_WARNING, text); }
  void error(const std::string& text) const { write(HVD_LOG_ERROR, text); }
  void info(const std::string& text) const { write(HVD_LOG_INFO, text); }
  void debug(const std::string& text) const { write(HVD_LOG_DEBUG, text); }
  void trace(const std::string& text) const { write(HVD_LOG_TRACE, text); }

 private:
  int level_;
  bool hide_time_;
  int rank_;
};

}  // namespace hvd
