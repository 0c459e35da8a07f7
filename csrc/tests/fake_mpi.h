// A table of MPI functions for ranks that are threads, so that sanitizers see what is done with MPI: messages
// between two ranks stay in order, a send completes when it was received, and memory is touched only while
// the request is active, as the standard allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hvd.h"
#include "tests/check.h"

namespace fake_mpi {

constexpr int kByte = 0x4c00010d;
constexpr int kTruncated = 15;

struct Message {
  void* data;
  int bytes;
  bool done = false;
  int code = 0;
};

struct State {
  std::mutex mutex;
  // By (from, to): what waits for its other half, either sends or receives.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> sends, receives;
  std::map<int, std::shared_ptr<Message>> requests;
  // Of failed worlds: MPI still has their memory, which the engine gave up on purpose.
  std::vector<std::shared_ptr<Message>> abandoned;
  int next_request = 1;
  int fail_at = -1;  // the request with this number fails
};

inline State& state() {
  static State* instance = new State;  // never destroyed: it keeps what was abandoned
  return *instance;
}

inline void match(int from, int to) {
  auto& sends = state().sends[{from, to}];
  auto& receives = state().receives[{from, to}];
  while (!sends.empty() && !receives.empty()) {
    Message &send = *sends.front(), &receive = *receives.front();
    if (send.bytes > receive.bytes) receive.code = kTruncated;
    std::memcpy(receive.data, send.data, static_cast<size_t>(std::min(send.bytes, receive.bytes)));
    send.done = receive.done = true;
    sends.pop_front();
    receives.pop_front();
  }
}

// The communicator of rank r is the handle r + 1: every rank has its own, as processes would.
inline int number(int handle) { return handle; }
inline int number(void* handle) { return static_cast<int>(reinterpret_cast<intptr_t>(handle)); }
inline void assign(int* handle, int value) { *handle = value; }
inline void assign(void** handle, int value) { *handle = reinterpret_cast<void*>(intptr_t{value}); }

template <typename Handle>
int start(bool sending, void* data, int bytes, Handle type, int peer, Handle comm, void* request) {
  CHECK(number(type) == kByte && bytes > 0);
  const int own = number(comm) - 1;
  std::lock_guard<std::mutex> lock(state().mutex);
  const int id = state().next_request++;
  if (id == state().fail_at) return 5;
  auto message = std::make_shared<Message>(Message{data, bytes});
  state().requests[id] = message;
  Handle handle;
  assign(&handle, id);
  std::memcpy(request, &handle, sizeof handle);
  const std::pair<int, int> connection = sending ? std::pair(own, peer) : std::pair(peer, own);
  (sending ? state().sends : state().receives)[connection].push_back(message);
  match(connection.first, connection.second);
  return 0;
}

template <typename Handle>
int isend(const void* data, int bytes, Handle type, int peer, int, Handle comm, void* request) {
  return start<Handle>(true, const_cast<void*>(data), bytes, type, peer, comm, request);
}

template <typename Handle>
int irecv(void* data, int bytes, Handle type, int peer, int, Handle comm, void* request) {
  return start<Handle>(false, data, bytes, type, peer, comm, request);
}

template <typename Handle>
int test(void* request, int* flag, void* status) {
  std::memset(status, 0xee, 32);
  Handle handle;
  std::memcpy(&handle, request, sizeof handle);
  std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().requests.find(number(handle));
  CHECK(found != state().requests.end());
  *flag = found->second->done ? 1 : 0;
  if (*flag == 0) return 0;
  const int code = found->second->code;
  state().requests.erase(found);
  return code;
}

inline int error_string(int code, char* text, int* length) {
  const std::string words = "code " + std::to_string(code) + " of the test";
  std::memcpy(text, words.c_str(), words.size() + 1);
  *length = static_cast<int>(words.size());
  return 0;
}

// Forgets everything, for the next world.
inline void reset(int fail_at = -1) {
  std::lock_guard<std::mutex> lock(state().mutex);
  for (auto& [id, message] : state().requests) state().abandoned.push_back(message);
  state().sends.clear();
  state().receives.clear();
  state().requests.clear();
  state().next_request = 1;
  state().fail_at = fail_at;
}

template <typename Handle>
hvd_mpi table(int rank) {
  return {sizeof(Handle),
          static_cast<uint64_t>(rank + 1),
          kByte,
          reinterpret_cast<void*>(&isend<Handle>),
          reinterpret_cast<void*>(&irecv<Handle>),
          reinterpret_cast<void*>(&test<Handle>),
          reinterpret_cast<void*>(&error_string)};
}

}  // namespace fake_mpi
