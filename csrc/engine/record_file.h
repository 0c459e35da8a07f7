// One rank's records in a file, in blocks with length and checksum: what was written whole can be read
// whatever happens to the process afterwards. horovod/timeline/records.py reads it, and tells how it is made
// up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/not_copied.h"
#include "base/status.h"
#include "engine/record.h"

namespace hvd {

// CRC-32 as zlib has it.
uint32_t crc32(const uint8_t* data, size_t size);

class RecordFile : NotCopied {
 public:
  ~RecordFile() { close(); }

  // A file that this process has written before is continued: a new world is a new header in it.
  Status open(const std::string& path, const RecordedRank& rank);
  bool is_open() const { return fd_ >= 0; }
  Status names(const std::vector<RecordedName>& names);
  Status records(const std::vector<Record>& records);
  // The last block.
  Status end(uint64_t dropped, const std::string& reason);
  void close();

 private:
  enum class Block : uint32_t { kHeader = 1, kNames = 2, kRecords = 3, kEnd = 4 };
  Status write(Block type, const uint8_t* data, size_t size);
  Status write(Block type, const std::string& text);

  int fd_ = -1;
  std::string path_;
};

}  // namespace hvd
