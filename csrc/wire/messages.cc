#include "wire/messages.h"

#include "kinds.h"
#include "wire/codec.h"

namespace hvd::wire {
namespace {

// The parts of a message in their order, for both directions: `Way` is a Writer, and the message constant, or
// a Reader that fills it in.

template <typename Way, typename AnyRequest>
void pass_request(Way& way, AnyRequest& request) {
  way.number(request.kind);
  way.number(request.process_set);
  way.number(request.root_rank);
  way.limited(request.op, HVD_PRODUCT);
  way.require(is_kind(request.kind));
  way.number(request.prescale);
  way.number(request.postscale);
  way.text(request.name);
  way.list(request.tensors, 5, [&](auto& tensor) {
    way.limited(tensor.type, kDataTypes - 1);
    way.numbers(tensor.shape);
  });
  way.numbers(request.numbers);
}

template <typename Way, typename AnyOperation>
void pass_operation(Way& way, AnyOperation& operation) {
  auto row = [&](auto& numbers) { way.numbers(numbers); };
  way.number(operation.code);
  way.text(operation.text);
  way.number(operation.process_set);
  way.text(operation.name);
  way.limited(operation.report, 1);
  way.list(operation.items, 4, [&](auto& item) {
    way.number(item.cached_id);
    if (item.cached_id != 0) return;
    auto& agreement = way.present(item.fresh);
    way.number(agreement.id);
    pass_request(way, agreement.common);
    way.list(agreement.first_dims, 4, row);
    way.list(agreement.columns, 8, [&](auto& column) {
      way.number(column.member);
      way.numbers(column.rows);
    });
    way.number(agreement.result);
  });
}

template <typename Way, typename AnyOffset>
void pass_offset(Way& way, AnyOffset& root) {
  way.number(root.offset);
  way.number(root.round_trip);
  way.limited(root.known, 1);
}

template <typename Way, typename AnyClock>
void pass_clock(Way& way, AnyClock& clock) {
  way.number(clock.sent);
  way.number(clock.last);
  way.number(clock.arrived);
  pass_offset(way, clock.root);
}

template <typename Way, typename AnyProgress>
void pass_progress(Way& way, AnyProgress& progress) {
  for (auto* number : {&progress.steps, &progress.operations, &progress.bytes, &progress.blocked_ns,
                       &progress.cpu_ns, &progress.resident_bytes, &progress.dropped, &progress.pending,
                       &progress.running_ns, &progress.idle_ns, &progress.step_ns})
    way.number(*number);
  way.text(progress.name);
  pass_offset(way, progress.root);
}

// A rank's, without a name.
constexpr size_t kLeastProgress =
    sizeof(int32_t) + 11 * sizeof(uint64_t) + sizeof(uint32_t) + 2 * sizeof(uint64_t) + 1;

template <typename Way, typename AnyList>
void pass_progress_of_ranks(Way& way, AnyList& ranks) {
  way.list(ranks, kLeastProgress, [&](auto& each) {
    way.number(each.rank);
    pass_progress(way, each.progress);
  });
}

template <typename Way, typename AnyVote>
void pass_vote(Way& way, AnyVote& vote) {
  way.number(vote.id);
  way.number(vote.last);
  way.number(vote.waited_ns);
  way.require(vote.waited_ns < (uint64_t{1} << 62));
  if (vote.id == 0) pass_request(way, way.present(vote.request));
}

// What follows the type.
template <typename Way, typename AnyMessage>
void pass_message(Way& way, AnyMessage& message) {
  switch (message.type) {
    case MessageType::kRequest:
      return pass_request(way, message.request);
    case MessageType::kResent:
      way.number(message.id);
      return pass_request(way, message.request);
    case MessageType::kOperation:
      return pass_operation(way, message.operation);
    case MessageType::kCached:
    case MessageType::kResend:
    case MessageType::kEvict:
      return way.number(message.id);
    case MessageType::kShutdown:
      return way.text(message.text);
    case MessageType::kAbort:
      way.text(message.text);
      way.number(message.culprit);
      way.limited(message.silent, 1);
      return way.require(message.culprit >= -1);
    case MessageType::kClock:
      return pass_clock(way, message.clock);
    case MessageType::kProgress:
      return pass_progress_of_ranks(way, message.progress);
    case MessageType::kDump:
      way.number(message.id);
      return way.text(message.text);
    case MessageType::kStacks:
      way.number(message.id);
      way.number(message.how);
      return way.text(message.text);
    case MessageType::kTuning:
      return way.numbers(message.choices);
    case MessageType::kVotes:
      return way.list(message.votes, sizeof(uint32_t) + sizeof(int32_t) + sizeof(uint64_t),
                      [&](auto& vote) { pass_vote(way, vote); });
    case MessageType::kShutdownAck:
    case MessageType::kDone:
    case MessageType::kClosed:
    case MessageType::kHeartbeat:
      return;
    default:
      return way.require(false);
  }
}

// A message with its length in front; `fill` writes what follows the type.
template <typename Fill>
std::vector<uint8_t> frame(MessageType type, Fill fill) {
  Writer out;
  out.bytes().reserve(64);  // enough for most
  out.number<uint32_t>(0);
  out.number(type);
  fill(out);
  auto length = static_cast<uint32_t>(out.bytes().size() - sizeof(uint32_t));
  std::memcpy(out.bytes().data(), &length, sizeof length);
  return std::move(out.bytes());
}

}  // namespace

std::vector<uint8_t> encode_request(const Request& request) {
  return frame(MessageType::kRequest, [&](Writer& out) { pass_request(out, request); });
}

std::vector<uint8_t> encode_resent(uint32_t id, const Request& request) {
  return frame(MessageType::kResent, [&](Writer& out) {
    out.number(id);
    pass_request(out, request);
  });
}

std::vector<uint8_t> encode_operation(const Operation& operation) {
  return frame(MessageType::kOperation, [&](Writer& out) { pass_operation(out, operation); });
}

std::vector<uint8_t> encode_simple(MessageType type) {
  return frame(type, [](Writer&) {});
}

std::vector<uint8_t> encode_id(MessageType type, uint32_t id) {
  return frame(type, [&](Writer& out) { out.number(id); });
}

std::vector<uint8_t> encode_text(MessageType type, const std::string& text) {
  return frame(type, [&](Writer& out) { out.text(text); });
}

std::vector<uint8_t> encode_clock(const Clock& clock) {
  return frame(MessageType::kClock, [&](Writer& out) { pass_clock(out, clock); });
}

std::vector<uint8_t> encode_progress(const std::vector<RankProgress>& progress) {
  return frame(MessageType::kProgress, [&](Writer& out) { pass_progress_of_ranks(out, progress); });
}

std::vector<uint8_t> encode_dump(uint32_t id, const std::string& reason) {
  return frame(MessageType::kDump, [&](Writer& out) {
    out.number(id);
    out.text(reason);
  });
}

std::vector<uint8_t> encode_stacks(uint32_t id, uint8_t how, const std::string& text) {
  return frame(MessageType::kStacks, [&](Writer& out) {
    out.number(id);
    out.number(how);
    out.text(text);
  });
}

std::vector<uint8_t> encode_tuning(const std::vector<uint8_t>& choices) {
  return frame(MessageType::kTuning, [&](Writer& out) { out.numbers(choices); });
}

std::vector<uint8_t> encode_abort(const Status& reason) {
  return frame(MessageType::kAbort, [&](Writer& out) {
    out.text(reason.text());
    out.number<int32_t>(reason.culprit());
    out.number<uint8_t>(reason.silent());
  });
}

std::vector<uint8_t> encode_votes(const std::vector<Vote>& votes) {
  return frame(MessageType::kVotes,
               [&](Writer& out) { out.list(votes, 0, [&](const Vote& vote) { pass_vote(out, vote); }); });
}

std::vector<uint8_t> wrap(MessageType type, const std::vector<int32_t>& ranks, const uint8_t* data,
                          size_t size) {
  return frame(type, [&](Writer& out) {
    out.numbers(ranks);
    out.bytes().insert(out.bytes().end(), data, data + size);
  });
}

std::vector<uint8_t> encode(const Message& message) {
  return frame(message.type, [&](Writer& out) { pass_message(out, message); });
}

bool decode(const uint8_t* data, size_t size, Message* message) {
  Reader in(data, size);
  in.number(message->type);
  pass_message(in, *message);
  return in.finished();
}

MessageType type_of(const uint8_t* data, size_t size) {
  return size > 0 ? static_cast<MessageType>(data[0]) : MessageType{};
}

bool unwrap(const uint8_t* data, size_t size, std::vector<int32_t>* ranks, const uint8_t** message,
            size_t* message_size) {
  const MessageType type = type_of(data, size);
  if (type != MessageType::kFrom && type != MessageType::kTo) return false;
  Reader in(data + 1, size - 1);
  in.numbers(*ranks);
  if (!in.ok() || ranks->empty()) return false;
  const size_t head = 1 + sizeof(uint32_t) + ranks->size() * sizeof(int32_t);
  *message = data + head;
  *message_size = size - head;
  return true;
}

}  // namespace hvd::wire
