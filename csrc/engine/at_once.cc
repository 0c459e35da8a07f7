// The short way of a small allreduce that all ranks of a host wait for at the same time: they meet
// (meeting.h) instead of asking the coordinator. A rank comes only if it has nothing else pending, so nothing
// that was released can be on its way to anybody when all have come, and the order of releases stays one.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "base/float_mode.h"
#include "base/processors.h"
#include "comm/pieces.h"
#include "engine/agreement.h"
#include "engine/engine.h"

namespace hvd {
namespace {

constexpr uint64_t kPatience = 60'000;  // nanoseconds; then the coordinator is asked
constexpr size_t kMostRead = 64 << 10;  // by each rank, of all
// From so many on, if they share processors, the last rank adds up for all: each has to fetch what it reads
// from the memory of others, and that of all ranks by every one grows with the square.
constexpr int kMany = 16;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool may_meet(const hvd_request& request) {
  return request.kind == HVD_ALLREDUCE && request.name != nullptr && request.process_set == 0 &&
         request.unnamed == 0 && request.done == nullptr && request.prescale == 1.0 &&
         request.tensor_count == 1 && request.tensors[0].output != nullptr &&
         request.tensors[0].device == HVD_CPU;
}

bool same_as(const wire::Request& known, const hvd_request& request) {
  const wire::TensorInfo& tensor = known.tensors.front();
  const hvd_tensor& other = request.tensors[0];
  return known.kind == request.kind && static_cast<int32_t>(known.op) == request.reduce_op &&
         known.root_rank == request.root_rank && known.prescale == request.prescale &&
         known.postscale == request.postscale && known.tensors.size() == 1 &&
         static_cast<int32_t>(tensor.type) == other.dtype &&
         tensor.shape.size() == static_cast<size_t>(other.ndim) &&
         std::equal(tensor.shape.begin(), tensor.shape.end(), other.shape);
}

}  // namespace

Engine::Remembered* Engine::to_meet_for(const hvd_request& request, uint32_t* id) {
  key_to_meet_.assign(sizeof(int32_t), '\0');  // see operation_key(): the set is 0
  key_to_meet_.append(request.name);
  auto named = cache_ids_.find(key_to_meet_);
  if (named == cache_ids_.end()) return nullptr;
  *id = named->second;
  Remembered& known = cache_.at(*id);
  const bool is_same = known.mine && same_as(known.request, request);
  return is_same && known.meeting.worth_a_try() ? &known : nullptr;
}

// Whether all ranks come. The caller has come.
bool Engine::await_meeting(uint64_t begin) {
  Met met = Met::kOpen;
  for (int looks = 0; (met = meeting_->look()) == Met::kOpen; ++looks) {
    if (meeting_->somebody_is_away()) break;
    if (spin_) {
      pause();
      if (looks % 64 == 63 && now_ns() - begin > kPatience) break;
    } else {
      if (looks == kYields) break;
      sched_yield();  // the others need this processor
    }
  }
  return (met == Met::kOpen ? meeting_->leave() : met) == Met::kAgreed;
}

// From the moment that the coordinator is asked to that of the release: who has heard of that may find the
// others in the next meeting, as they have, too, before the operation ends anywhere.
void Engine::go_away(Task& task) {
  task.away = true;
  meeting_->go_away();
}

void Engine::come_back(Task& task) {
  if (!task.away) return;
  task.away = false;
  meeting_->come_back();
}

// In one record, but for the votes of more than two ranks: it must not cost more than a small part of what it
// tells of.
void Engine::record_meeting(const wire::Request& common, uint32_t id, OperationNumber number,
                            const Moments& moments, uint64_t bytes) {
  static_assert(Meeting::kRoom <= std::numeric_limits<uint16_t>::max(), "see RecordKind::kMeeting");
  const uint32_t name = recorder_.names().of(common, id);
  for (int rank = 2; coordinator_ && rank < size_; ++rank)
    recorder_.add(meeting_->since(rank), RecordKind::kReady, name, {}, HVD_ALLREDUCE, 0,
                  static_cast<uint64_t>(rank));
  auto after_begin = [&](uint64_t time) {  // a process may be stopped for any time
    return std::min<uint64_t>(time - moments.begin, std::numeric_limits<uint32_t>::max());
  };
  recorder_.add(moments.begin, RecordKind::kMeeting, name, {number.operation, thread_number(), 0},
                static_cast<uint16_t>(bytes), coordinator_ ? meeting_->since(1) : 0,
                after_begin(moments.end) << 32 | after_begin(moments.start));
}

// What all came with, in rank order; `input` is this rank's.
void Engine::add_up(const Reduction& reduction, const void* input, void* output, size_t bytes) {
  const FloatMode mode;
  const Piece in{const_cast<void*>(input), bytes}, out{output, bytes};
  Cursor from(&in, 1), to(&out, 1);
  sources_to_meet_.resize(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) sources_to_meet_[static_cast<size_t>(rank)] = meeting_->room(rank);
  reduce(reduction, from, rank_, sources_to_meet_, -1, to, bytes);
}

bool Engine::run_at_once(const hvd_request& request) {
  if (!meeting_ || !may_meet(request) || meeting_->somebody_is_away()) return false;
  std::unique_lock<std::mutex> driver(driver_mutex_, std::try_to_lock);
  if (!driver.owns_lock()) return false;
  // Held until the end: nobody submits meanwhile.
  std::unique_lock<std::mutex> lock(mutex_);
  uint32_t id = 0;
  if (!closed_.ok() || abort_->raised() || !pending_.empty()) return false;
  Remembered* known = to_meet_for(request, &id);
  if (known == nullptr) return false;
  const wire::Request& common = known->agreement->common;
  const std::optional<Reduction> reduction = plain_reduction(common, meeting_->size());
  const uint64_t bytes = request_bytes(common);
  if (!reduction || bytes == 0 || bytes > Meeting::kRoom || bytes * size_ > kMostRead) return false;

  visits_.fetch_add(1);
  const uint64_t begin = now_ns();
  const void* input = request.tensors[0].input;
  const bool many = !spin_ && size_ >= kMany;
  meeting_->come(
      id, begin, [&](std::byte* room) { std::memcpy(room, input, bytes); },
      [&](std::byte* room) {
        if (many) add_up(*reduction, input, room, bytes);
        return many;
      });
  const bool agreed = await_meeting(begin);
  known->meeting.tried(agreed);
  if (agreed) {
    const uint64_t start = now_ns();
    recent_.begin(known->agreement, 1, bytes, start);
    if (const std::byte* combined = meeting_->combined()) {
      std::memcpy(request.tensors[0].output, combined, bytes);
    } else {
      meeting_->keep_apart();
      add_up(*reduction, input, request.tensors[0].output, bytes);
    }
    const uint64_t end = now_ns();
    const OperationNumber number = numbers_.next(0);
    if (coordinator_) coordinator_->run_without_release();
    if (recorder_.active()) record_meeting(common, id, number, {begin, start, end}, bytes);
    metrics_.cache_hits.bump();
    metrics_.met.bump();
    count_operation(common.kind, 1, bytes, start, end);
    metrics_.negotiation_seconds.bump_ns(start - begin);
    metrics_.blocked_ns.add(end - begin);
    recent_.end(end);
  }
  lock.unlock();
  driver.unlock();
  waiters_.call_one();
  return agreed;
}

}  // namespace hvd
