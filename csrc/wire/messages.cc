#include "wire/messages.h"

#include "kinds.h"
#include "wire/codec.h"

namespace hvd::wire {
namespace {

void put(Writer& out, const Request& request) {
  out.number(request.kind);
  out.number(request.process_set);
  out.number(request.root_rank);
  out.number(request.op);
  out.number(request.prescale);
  out.number(request.postscale);
  out.text(request.name);
  out.number<uint32_t>(static_cast<uint32_t>(request.tensors.size()));
  for (const TensorInfo& tensor : request.tensors) {
    out.number(tensor.type);
    out.numbers(tensor.shape);
  }
  out.numbers(request.numbers);
}

Request get_request(Reader& in) {
  Request request;
  request.kind = in.number<int32_t>();
  request.process_set = in.number<int32_t>();
  request.root_rank = in.number<int32_t>();
  auto op = in.number<uint8_t>();
  if (!is_kind(request.kind) || op > HVD_PRODUCT) in.fail();
  request.op = static_cast<ReduceOp>(op);
  request.prescale = in.number<double>();
  request.postscale = in.number<double>();
  request.name = in.text();
  size_t count = in.count(5);
  for (size_t i = 0; i < count && in.ok(); ++i) {
    TensorInfo tensor;
    auto type = in.number<uint8_t>();
    if (type >= kDataTypes) in.fail();
    tensor.type = static_cast<DataType>(type);
    tensor.shape = in.numbers<int64_t>();
    request.tensors.push_back(std::move(tensor));
  }
  request.numbers = in.numbers<int32_t>();
  return request;
}

template <typename T>
void put_rows(Writer& out, const std::vector<std::vector<T>>& rows) {
  out.number<uint32_t>(static_cast<uint32_t>(rows.size()));
  for (const auto& row : rows) out.numbers(row);
}

template <typename T>
std::vector<std::vector<T>> get_rows(Reader& in) {
  std::vector<std::vector<T>> rows;
  size_t count = in.count(4);
  for (size_t i = 0; i < count && in.ok(); ++i) rows.push_back(in.numbers<T>());
  return rows;
}

void put(Writer& out, const Operation& operation) {
  out.number(operation.code);
  out.text(operation.text);
  out.number(operation.process_set);
  out.text(operation.name);
  out.number<uint8_t>(operation.report);
  out.number<uint32_t>(static_cast<uint32_t>(operation.items.size()));
  for (const Item& item : operation.items) {
    out.number(item.cached_id);
    if (item.cached_id != 0) continue;
    const Agreement& agreement = *item.fresh;
    out.number(agreement.id);
    put(out, agreement.common);
    put_rows(out, agreement.first_dims);
    put_rows(out, agreement.splits);
    out.number(agreement.result);
  }
}

Operation get_operation(Reader& in) {
  Operation operation;
  operation.code = in.number<int32_t>();
  operation.text = in.text();
  operation.process_set = in.number<int32_t>();
  operation.name = in.text();
  auto report = in.number<uint8_t>();
  if (report > 1) in.fail();
  operation.report = report == 1;
  size_t count = in.count(4);
  for (size_t i = 0; i < count && in.ok(); ++i) {
    Item item;
    item.cached_id = in.number<uint32_t>();
    if (item.cached_id == 0) {
      Agreement agreement;
      agreement.id = in.number<uint32_t>();
      agreement.common = get_request(in);
      agreement.first_dims = get_rows<int64_t>(in);
      agreement.splits = get_rows<int32_t>(in);
      agreement.result = in.number<int64_t>();
      item.fresh = std::move(agreement);
    }
    operation.items.push_back(std::move(item));
  }
  return operation;
}

void put(Writer& out, const Clock& clock) {
  out.number(clock.sent);
  out.number(clock.last);
  out.number(clock.arrived);
}

Clock get_clock(Reader& in) {
  Clock clock;
  clock.sent = in.number<int64_t>();
  clock.last = in.number<int64_t>();
  clock.arrived = in.number<int64_t>();
  return clock;
}

void put(Writer& out, const Progress& progress) {
  for (uint64_t number : {progress.steps, progress.operations, progress.bytes, progress.blocked_ns,
                          progress.cpu_ns, progress.resident_bytes, progress.dropped, progress.pending,
                          progress.running_ns, progress.idle_ns, progress.step_ns})
    out.number(number);
  out.text(progress.name);
}

Progress get_progress(Reader& in) {
  Progress progress;
  for (uint64_t* number : {&progress.steps, &progress.operations, &progress.bytes, &progress.blocked_ns,
                           &progress.cpu_ns, &progress.resident_bytes, &progress.dropped, &progress.pending,
                           &progress.running_ns, &progress.idle_ns, &progress.step_ns})
    *number = in.number<uint64_t>();
  progress.name = in.text();
  return progress;
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
  put(out, request);
  return finish(out);
}

std::vector<uint8_t> encode_resent(uint32_t id, const Request& request) {
  Writer out = start(MessageType::kResent);
  out.number(id);
  put(out, request);
  return finish(out);
}

std::vector<uint8_t> encode_operation(const Operation& operation) {
  Writer out = start(MessageType::kOperation);
  put(out, operation);
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
  put(out, clock);
  return finish(out);
}

std::vector<uint8_t> encode_progress(const Progress& progress) {
  Writer out = start(MessageType::kProgress);
  put(out, progress);
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
      message->request = get_request(in);
      break;
    case MessageType::kResent:
      message->id = in.number<uint32_t>();
      message->request = get_request(in);
      break;
    case MessageType::kOperation:
      message->operation = get_operation(in);
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
      message->clock = get_clock(in);
      break;
    case MessageType::kProgress:
      message->progress = get_progress(in);
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
