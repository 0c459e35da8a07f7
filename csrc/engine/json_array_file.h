// A file with one JSON array that grows and is whole whenever one looks at it: the closing bracket is
// replaced by what comes next and a new one, in one write.
#pragma once

#include <cstdint>
#include <string>

#include "base/not_copied.h"
#include "base/status.h"

namespace hvd {

class JsonArrayFile : NotCopied {
 public:
  ~JsonArrayFile() { close(); }

  // A long write may be cut short where the process is killed, and a short one costs more for each byte: so
  // they are short but where the same can be read elsewhere.
  enum class Writes { kShort, kLong };
  Status open(const std::string& path, Writes writes = Writes::kShort);
  // An entry, to be written with the next ones.
  void add(const std::string& entry);
  // Writes what was added. After a failure the file stays what it was before, a whole array.
  Status flush();
  void close();

 private:
  void write_pending();
  Status write(std::string& text);

  int fd_ = -1;
  size_t most_ = 0;  // bytes of a write, or an entry more
  std::string path_;
  int64_t end_ = 0;  // where the closing bracket's line begins
  bool first_ = true;
  std::string pending_;
  Status failure_;
};

}  // namespace hvd
