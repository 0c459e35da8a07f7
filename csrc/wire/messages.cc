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
    way.list(agreement.splits, 4, row);
    way.number(agreement.result);
  });
}

template <typename Way, typename AnyClock>
void pass_clock(Way& way, AnyClock& clock) {
  way.number(clock.sent);
  way.number(clock.last);
  way.number(clock.arrived);
}

template <typename Way, typename AnyProgress>
void pass_progress(Way& way, AnyProgress& progress) {
  for (auto* number : {&progress.steps, &progress.operations, &progress.bytes, &progress.blocked_ns,
                       &progress.cpu_ns, &progress.resident_bytes, &progress.dropped, &progress.pending,
                       &progress.running_ns, &progress.idle_ns, &progress.step_ns})
    way.number(*number);
  way.text(progress.name);
}

// Starts a frame; its length is filled in at the end.
Writer start(MessageType type) {
  Writer out;
  out.bytes().reserve(64);  // enough for most
  out.number<uint32_t>(0);
  out.number(type);
  return out;
}

std::vector<uint8_t> finish(Writer& out) {
  auto length = static_cast<uint32_t>(out.bytes().size() - sizeof(uint32_t));
  std::memcpy(out.bytes().data(), &length, sizeof length);
  return std::move(out.bytes());
}

}  // namespace

std::vector<uint8_t> encode_request(const Request& request) {
  Writer out = start(MessageType::kRequest);
  pass_request(out, request);
  return finish(out);
}

std::vector<uint8_t> encode_resent(uint32_t id, const Request& request) {
  Writer out = start(MessageType::kResent);
  out.number(id);
  pass_request(out, request);
  return finish(out);
}

std::vector<uint8_t> encode_operation(const Operation& operation) {
  Writer out = start(MessageType::kOperation);
  pass_operation(out, operation);
  return finish(out);
}

std::vector<uint8_t> encode_simple(MessageType type) {
  Writer out = start(type);
  return finish(out);
}

std::vector<uint8_t> encode_id(MessageType type, uint32_t id) {
  Writer out = start(type);
  out.number(id);
  return finish(out);
}

std::vector<uint8_t> encode_text(MessageType type, const std::string& text) {
  Writer out = start(type);
  out.text(text);
  return finish(out);
}

std::vector<uint8_t> encode_clock(const Clock& clock) {
  Writer out = start(MessageType::kClock);
  pass_clock(out, clock);
  return finish(out);
}

std::vector<uint8_t> encode_progress(const Progress& progress) {
  Writer out = start(MessageType::kProgress);
  pass_progress(out, progress);
  return finish(out);
}

std::vector<uint8_t> encode_dump(uint32_t id, const std::string& reason) {
  Writer out = start(MessageType::kDump);
  out.number(id);
  out.text(reason);
  return finish(out);
}

std::vector<uint8_t> encode_stacks(uint32_t id, uint8_t how, const std::string& text) {
  Writer out = start(MessageType::kStacks);
  out.number(id);
  out.number(how);
  out.text(text);
  return finish(out);
}

std::vector<uint8_t> encode_abort(const Status& reason) {
  Writer out = start(MessageType::kAbort);
  out.text(reason.text());
  out.number<int32_t>(reason.culprit());
  out.number<uint8_t>(reason.silent());
  return finish(out);
}

std::vector<uint8_t> encode(const Message& message) {
  switch (message.type) {
    case MessageType::kClock:
      return encode_clock(message.clock);
    case MessageType::kProgress:
      return encode_progress(message.progress);
    case MessageType::kDump:
      return encode_dump(message.id, message.text);
    case MessageType::kStacks:
      return encode_stacks(message.id, message.how, message.text);
    case MessageType::kRequest:
      return encode_request(message.request);
    case MessageType::kResent:
      return encode_resent(message.id, message.request);
    case MessageType::kOperation:
      return encode_operation(message.operation);
    case MessageType::kCached:
    case MessageType::kResend:
    case MessageType::kEvict:
      return encode_id(message.type, message.id);
    case MessageType::kShutdown:
      return encode_text(message.type, message.text);
    case MessageType::kAbort:
      return encode_abort(Status::unknown(message.text).blame(message.culprit, message.silent));
    default:
      return encode_simple(message.type);
  }
}

bool decode(const uint8_t* data, size_t size, Message* message) {
  Reader in(data, size);
  message->type = static_cast<MessageType>(in.number<uint8_t>());
  switch (message->type) {
    case MessageType::kRequest:
      pass_request(in, message->request);
      break;
    case MessageType::kResent:
      message->id = in.number<uint32_t>();
      pass_request(in, message->request);
      break;
    case MessageType::kOperation:
      pass_operation(in, message->operation);
      break;
    case MessageType::kCached:
    case MessageType::kResend:
    case MessageType::kEvict:
      message->id = in.number<uint32_t>();
      break;
    case MessageType::kShutdown:
      message->text = in.text();
      break;
    case MessageType::kAbort:
      message->text = in.text();
      message->culprit = in.number<int32_t>();
      if (auto silent = in.number<uint8_t>(); message->culprit < -1 || silent > 1) {
        in.fail();
      } else {
        message->silent = silent == 1;
      }
      break;
    case MessageType::kClock:
      pass_clock(in, message->clock);
      break;
    case MessageType::kProgress:
      pass_progress(in, message->progress);
      break;
    case MessageType::kDump:
      message->id = in.number<uint32_t>();
      message->text = in.text();
      break;
    case MessageType::kStacks:
      message->id = in.number<uint32_t>();
      message->how = in.number<uint8_t>();
      message->text = in.text();
      break;
    case MessageType::kShutdownAck:
    case MessageType::kDone:
    case MessageType::kClosed:
    case MessageType::kHeartbeat:
      break;
    default:
      return false;
  }
  return in.finished();
}

}  // namespace hvd::wire
