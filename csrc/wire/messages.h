// What ranks and the coordinator say to each other. A frame is a 32-bit length and that many bytes: a type
// and its payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace hvd::wire {

constexpr size_t kMaxFrame = 64 << 20;

enum class MessageType : uint8_t {
  // rank -> coordinator
  kRequest = 1,      // Request: this rank has the operation ready
  kCached = 2,       // id: the same, for an operation agreed on before
  kShutdown = 3,     // both ways; coordinator -> rank with a text
  kShutdownAck = 4,  // this rank has run everything released before
  kDone = 5,         // this rank has run an operation whose end it was to report
  kResent = 6,       // id, Request: the answer to kResend
  // coordinator -> rank
  kOperation = 7,  // Operation: run it now
  kResend = 8,     // id: forgotten, send the whole request
  kEvict = 9,      // id: forget it
  kClosed = 10,    // everyone has acknowledged the shutdown
  kTuning = 13,    // choices: how what follows is cut
  // between a rank that has others below it and the one above
  kVotes = 14,  // votes: ranks have operations ready
  kFrom = 15,   // ranks, and a message of theirs; see wrap()
  kTo = 16,     // ranks, and a message for them
  // liveness connections, both ways
  kHeartbeat = 11,
  kAbort = 12,  // text, the rank at fault or -1, whether it was silent
  kClock = 20,  // Clock: a sign of life, too
  // of the liveness connections, up
  kProgress = 21,  // progress, of the sender and of ranks below it
  // of the liveness connections, in kFrom, from any rank to rank 0
  kStacks = 22,  // id, how, text: the answer to kDump
  // of the liveness connections, in kTo, from rank 0 to any rank
  kDump = 23,  // id, text: tell where your threads are; the text is why
};

// How far another clock is ahead, in nanoseconds: at most half the round trip more or less.
struct ClockOffset {
  int64_t offset = 0;
  uint64_t round_trip = 0;
  bool known = false;
};

// Nanoseconds, each of the clock of who took the time.
struct Clock {
  int64_t sent = 0;     // when this message was
  int64_t last = 0;     // when the peer sent the last one that arrived here
  int64_t arrived = 0;  // when that was; 0: none has
  ClockOffset root;     // of rank 0's clock, as the sender knows it
};

// How far a rank has come.
struct Progress {
  uint64_t steps = 0, operations = 0, bytes = 0, blocked_ns = 0, cpu_ns = 0, resident_bytes = 0, dropped = 0,
           pending = 0;
  uint64_t running_ns = 0;  // so long has it run `name`; 0: that has ended
  uint64_t idle_ns = 0;     // so long ago
  uint64_t step_ns = 0;     // the last step took
  std::string name;         // of its latest operation
  ClockOffset root;         // of rank 0's clock
};

struct RankProgress {
  int32_t rank = 0;
  Progress progress;
};

struct TensorInfo {
  DataType type = DataType::kFloat32;
  std::vector<int64_t> shape;
  bool operator==(const TensorInfo& other) const { return type == other.type && shape == other.shape; }
};

// An operation as one rank submits it.
struct Request {
  int32_t kind = 0;
  int32_t process_set = 0;
  int32_t root_rank = 0;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<TensorInfo> tensors;
  std::vector<int32_t> numbers;  // alltoall: splits; add_process_set: ranks
};

// What one member gets in an alltoall.
struct Column {
  int32_t member = 0;
  std::vector<int32_t> rows;  // by sender
  bool operator==(const Column& other) const { return member == other.member && rows == other.rows; }
};

// What all ranks agreed on. `common` is the first member's request; what may differ by rank stands apart.
struct Agreement {
  uint32_t id = 0;  // 0 = not remembered
  Request common;
  std::vector<std::vector<int64_t>> first_dims;  // allgather, alltoall: [tensor][member]
  std::vector<Column> columns;                   // alltoall: of every member; a rank is told only its own
  int64_t result = 0;                            // join, add_process_set
};

// Either an agreement or the id of a remembered one.
struct Item {
  uint32_t cached_id = 0;
  std::optional<Agreement> fresh;
};

// Released to all members of a process set: items to run fused; or, to those who have it, one name to fail.
struct Operation {
  int32_t code = 0;  // HVD_OK: run the items; otherwise fail (process_set, name) with the text
  std::string text;
  int32_t process_set = 0;
  std::string name;
  bool report = false;  // the first member sends kDone when it has run this
  std::vector<Item> items;
};

// Some ranks have the same operation ready.
struct Vote {
  uint32_t id = 0;  // of an operation agreed on before, or
  std::optional<Request> request;
  int32_t last = 0;        // the rank that had it last
  uint64_t waited_ns = 0;  // for so long has the first one
};

// A message of any type; which fields count follows from the type.
struct Message {
  MessageType type = MessageType::kHeartbeat;
  uint32_t id = 0;
  std::string text;
  int32_t culprit = -1;
  bool silent = false;
  Request request;
  Operation operation;
  Clock clock;
  std::vector<RankProgress> progress;
  uint8_t how = 0;
  std::vector<uint8_t> choices;
  std::vector<Vote> votes;
};

// A whole frame, ready to be sent.
std::vector<uint8_t> encode(const Message& message);
std::vector<uint8_t> encode_request(const Request& request);
std::vector<uint8_t> encode_resent(uint32_t id, const Request& request);
std::vector<uint8_t> encode_operation(const Operation& operation);
std::vector<uint8_t> encode_simple(MessageType type);
std::vector<uint8_t> encode_id(MessageType type, uint32_t id);
std::vector<uint8_t> encode_text(MessageType type, const std::string& text);
std::vector<uint8_t> encode_clock(const Clock& clock);
std::vector<uint8_t> encode_progress(const std::vector<RankProgress>& progress);
std::vector<uint8_t> encode_dump(uint32_t id, const std::string& reason);
std::vector<uint8_t> encode_stacks(uint32_t id, uint8_t how, const std::string& text);
std::vector<uint8_t> encode_tuning(const std::vector<uint8_t>& choices);
std::vector<uint8_t> encode_abort(const Status& reason);
std::vector<uint8_t> encode_votes(const std::vector<Vote>& votes);
// The frame whose message, without length, is given, in one of kFrom or kTo. Ranks are pairs: the first of a
// row and how many there are.
std::vector<uint8_t> wrap(MessageType type, const std::vector<int32_t>& ranks, const uint8_t* data,
                          size_t size);

// Decodes the bytes after the length. False if they are not exactly one well-formed message.
bool decode(const uint8_t* data, size_t size, Message* message);
// The type of the message; kFrom and kTo are no messages that decode() knows.
MessageType type_of(const uint8_t* data, size_t size);
// The ranks and the message in a frame of wrap(). False if it is not one, or not well-formed.
bool unwrap(const uint8_t* data, size_t size, std::vector<int32_t>* ranks, const uint8_t** message,
            size_t* message_size);

}  // namespace hvd::wire
