// What negotiation must come to, written a second time as simply as possible: votes are counted one after
// another, each operation has its list of votes, and everything is looked at again after each vote. When and
// in what company an operation is released is no matter here.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "wire/messages.h"

namespace reference {

using hvd::DataType;
using hvd::ReduceOp;
using hvd::wire::Agreement;
using hvd::wire::Request;

// Something a rank has submitted.
struct Submission {
  int number = 0;
  int rank = 0;
  Request request;
  uint32_t sent_as = 0;
  bool arrived = false;  // at the coordinator
  int ended = 0;         // how often
};

struct Set {
  int incarnation = 0;  // tells sets with the same id apart
  std::vector<int> members;
};

constexpr int kOpen = 1;

struct Operation {
  int id = 0;  // of the process set
  Set set;
  std::string name;
  std::map<int, Submission*> votes;  // by rank
  int first_kind = 0, last_rank = 0;
  int code = kOpen;
  Agreement agreement;  // if the code is HVD_OK
};

inline bool by_rows(int kind) { return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL; }
inline bool of_everyone(int kind) {
  return kind == HVD_JOIN || kind == HVD_ADD_PROCESS_SET || kind == HVD_REMOVE_PROCESS_SET;
}

inline bool same_shapes(const Request& a, const Request& b) {
  if (a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    std::vector<int64_t> left = a.tensors[i].shape, right = b.tensors[i].shape;
    if (by_rows(a.kind) && !left.empty() && !right.empty()) left[0] = right[0] = 0;
    if (left != right) return false;
  }
  return true;
}

inline int compare(const Request& a, const Request& b) {
  for (size_t i = 0; i < a.tensors.size() && i < b.tensors.size(); ++i)
    if (a.tensors[i].type != b.tensors[i].type) return HVD_FAILED_PRECONDITION;
  if (a.kind != b.kind || !same_shapes(a, b) || a.op != b.op) return HVD_FAILED_PRECONDITION;
  if (a.prescale != b.prescale || a.postscale != b.postscale) return HVD_FAILED_PRECONDITION;
  if (a.kind == HVD_BROADCAST && a.root_rank != b.root_rank) return HVD_FAILED_PRECONDITION;
  if (a.kind == HVD_ADD_PROCESS_SET && a.numbers != b.numbers) return HVD_INVALID_ARGUMENT;
  if (a.kind == HVD_REMOVE_PROCESS_SET && a.root_rank != b.root_rank) return HVD_INVALID_ARGUMENT;
  return HVD_OK;
}

inline int judge(const Operation& operation) {
  const Request& first = operation.votes.begin()->second->request;
  for (const auto& vote : operation.votes)
    if (int code = compare(first, vote.second->request); code != HVD_OK) return code;
  const size_t members = operation.set.members.size();
  const bool reduces = first.kind == HVD_ALLREDUCE || first.kind == HVD_REDUCESCATTER;
  const bool sums = first.op == ReduceOp::kSum || first.op == ReduceOp::kAverage;
  if (operation.votes.size() < members && !first.tensors.empty() && first.kind != HVD_ALLREDUCE)
    return HVD_FAILED_PRECONDITION;
  for (const auto& tensor : first.tensors) {
    if ((by_rows(first.kind) || first.kind == HVD_REDUCESCATTER) && tensor.shape.empty())
      return HVD_FAILED_PRECONDITION;
    if (reduces && hvd::is_complex(tensor.type) && !sums) return HVD_ABORTED;
    if (reduces && first.op == ReduceOp::kAdasum && !hvd::is_floating(tensor.type)) return HVD_ABORTED;
  }
  if (first.kind == HVD_REDUCESCATTER && !sums) return HVD_ABORTED;
  const bool power_of_two = members == 1 || members == 2 || members == 4 || members == 8;
  if (first.kind == HVD_ALLREDUCE && first.op == ReduceOp::kAdasum && !power_of_two) return HVD_ABORTED;
  return HVD_OK;
}

class Negotiation {
 public:
  explicit Negotiation(int size) {
    for (int rank = 0; rank < size; ++rank) sets_[0].members.push_back(rank);
  }

  std::list<Operation*> open;        // in order of arrival
  std::list<Operation*> unreleased;  // decided, but no rank has heard of it
  size_t stand_ins = 0;              // operations that joined ranks have completed

  void vote(Submission* submission) {
    const Request& request = submission->request;
    const int rank = submission->rank;
    auto set = sets_.find(request.process_set);
    Operation* operation = find(request.process_set, request.name);
    if (set == sets_.end() || !std::count(set->second.members.begin(), set->second.members.end(), rank)) {
      operation = create(request, set == sets_.end() ? Set{-1, {}} : set->second);
      operation->votes[rank] = submission;
      return decide(operation, HVD_INVALID_ARGUMENT);
    }
    if (operation == nullptr) operation = create(request, set->second);
    operation->votes[rank] = submission;
    operation->last_rank = rank;
    if (request.kind == HVD_JOIN) joined_.insert(rank);
    while (decide_one(false) || decide_one(true)) {
    }
  }

  bool missing(const Operation& operation, int rank) const {
    bool everyone = false;
    for (const auto& vote : operation.votes) everyone |= of_everyone(vote.second->request.kind);
    return operation.votes.count(rank) == 0 && (everyone || joined_.count(rank) == 0);
  }

 private:
  Operation* find(int id, const std::string& name) {
    for (Operation* operation : open)
      if (operation->id == id && operation->name == name) return operation;
    return nullptr;
  }

  Operation* create(const Request& request, const Set& set) {
    all_.push_back({request.process_set, set, request.name, {}, request.kind, 0, kOpen, {}});
    open.push_back(&all_.back());
    return open.back();
  }

  // Joins come last: what joined ranks stand in for must not wait for them afterwards.
  bool decide_one(bool join) {
    for (Operation* operation : open) {
      const auto& members = operation->set.members;
      bool joins = false;
      for (const auto& vote : operation->votes) joins |= vote.second->request.kind == HVD_JOIN;
      if (joins != join) continue;
      if (std::any_of(members.begin(), members.end(), [&](int r) { return missing(*operation, r); }))
        continue;
      decide(operation, judge(*operation));
      return true;
    }
    return false;
  }

  void decide(Operation* operation, int code) {
    open.remove(operation);
    unreleased.push_back(operation);
    operation->code = code;
    const Request& first = operation->votes.begin()->second->request;
    if (code != HVD_OK) {
      for (const auto& vote : operation->votes)
        if (vote.second->request.kind == HVD_JOIN) joined_.erase(vote.first);
      return;
    }
    stand_ins += operation->votes.size() < operation->set.members.size();
    operation->agreement.common = first;
    if (by_rows(first.kind)) {
      operation->agreement.first_dims.resize(first.tensors.size());
      for (const auto& vote : operation->votes) {
        const Request& own = vote.second->request;
        for (size_t i = 0; i < own.tensors.size(); ++i)
          operation->agreement.first_dims[i].push_back(own.tensors[i].shape[0]);
      }
      if (first.kind == HVD_ALLTOALL) operation->agreement.common.numbers.clear();
      for (int32_t to = 0; first.kind == HVD_ALLTOALL && to < static_cast<int32_t>(first.numbers.size());
           ++to) {
        operation->agreement.columns.push_back({to, {}});
        for (const auto& vote : operation->votes)
          operation->agreement.columns.back().rows.push_back(
              vote.second->request.numbers[static_cast<size_t>(to)]);
      }
    }
    if (first.kind == HVD_JOIN) {
      operation->agreement.result = operation->last_rank;
      joined_.clear();
    } else if (first.kind == HVD_ADD_PROCESS_SET) {
      add(operation, first);
    } else if (first.kind == HVD_REMOVE_PROCESS_SET) {
      remove(operation, first.root_rank);
    }
  }

  void add(Operation* operation, const Request& first) {
    std::vector<int> members(first.numbers.begin(), first.numbers.end());
    int id = 0;
    while (sets_.count(id)) ++id;
    for (const auto& set : sets_)
      if (set.second.members == members) operation->code = HVD_INVALID_ARGUMENT;
    if (operation->code != HVD_OK) return;
    sets_[id] = {++incarnations_, members};
    operation->agreement.result = id;
  }

  void remove(Operation* operation, int id) {
    if (id == 0 || sets_.erase(id) == 0) {
      operation->code = HVD_INVALID_ARGUMENT;
      return;
    }
    operation->agreement.result = id;
    for (Operation* other : std::list<Operation*>(open))
      if (other->id == id) decide(other, HVD_INVALID_ARGUMENT);
  }

  std::map<int, Set> sets_;
  std::set<int> joined_;
  std::deque<Operation> all_;
  int incarnations_ = 0;
};

}  // namespace reference
