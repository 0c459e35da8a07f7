#include "comm/mesh/plans.h"

#include <algorithm>
#include <utility>

namespace hvd {

// ---- direct

DirectPlan::DirectPlan(std::vector<Share> out, std::vector<Share> in)
    : out_(std::move(out)), in_(std::move(in)), sent_(out_.size()), received_(in_.size()) {}

Next DirectPlan::send(int peer, Transfer& transfer) {
  if (sent_[peer]) return Next::kEnd;
  sent_[peer] = true;
  transfer = {&out_[peer].place, out_[peer].bytes};
  return Next::kTransfer;
}

Next DirectPlan::receive(int peer, Transfer& transfer) {
  if (received_[peer]) return Next::kEnd;
  received_[peer] = true;
  transfer = {&in_[peer].place, in_[peer].bytes};
  return Next::kTransfer;
}

// ---- reduce

bool ReducePlan::Turns::find() {
  for (;;) {
    if (turn >= std::max(contributions, results == 0 ? 0 : results + kLag)) return false;
    if (!result && turn < contributions) return true;
    if (result && turn >= kLag && turn - kLag < results) return true;
    pass();
  }
}

void ReducePlan::Turns::pass() {
  if (result) ++turn;
  result = !result;
}

ReducePlan::ReducePlan(const Reduction& reduction, int rank, const std::vector<Share>& inputs,
                       const Cursor& own_output, const std::vector<Share>& outputs, std::byte* staging,
                       size_t chunk)
    : reduction_(reduction),
      rank_(rank),
      chunk_(chunk),
      staging_(staging),
      staged_(inputs.size()),
      progress_(inputs.size()),
      sources_(inputs.size()),
      own_input_(inputs[rank].place),
      own_output_(own_output) {
  auto chunks = [&](const Share& share) { return (share.bytes + chunk - 1) / chunk; };
  const bool results = !outputs.empty();
  for (const Share& share : inputs) bytes_.push_back(share.bytes);
  for (size_t i = 0; i < progress_.size(); ++i) {
    Progress& peer = progress_[i];
    staged_[i] = {staging + i * chunk, chunk};
    peer.staged = Cursor(&staged_[i], 1);
    peer.contribution = inputs[i].place;
    peer.out.contributions = peer.in.results = chunks(inputs[i]);
    peer.in.contributions = peer.out.results = chunks(inputs[rank]);
    if (results) {
      peer.own_result = own_output;
      peer.result = outputs[i].place;
    } else {
      peer.in.results = peer.out.results = 0;
    }
  }
}

Next ReducePlan::send(int index, Transfer& transfer) {
  Progress& peer = progress_[index];
  if (!peer.out.find()) return Next::kEnd;
  size_t chunk = peer.out.chunk();
  if (peer.out.result) {
    if (chunk >= combined_) return Next::kLater;
    transfer = {&peer.own_result, chunk_bytes(rank_, chunk)};
  } else {
    transfer = {&peer.contribution, chunk_bytes(index, chunk)};
  }
  peer.out.pass();
  return Next::kTransfer;
}

Next ReducePlan::receive(int index, Transfer& transfer) {
  Progress& peer = progress_[index];
  if (!peer.in.find()) return Next::kEnd;
  size_t chunk = peer.in.chunk();
  peer.result_expected = peer.in.result;
  if (peer.in.result) {
    transfer = {&peer.result, chunk_bytes(index, chunk)};
  } else {
    if (chunk > combined_) return Next::kLater;  // the staging memory still holds the chunk before
    peer.staged.seek(0);
    transfer = {&peer.staged, chunk_bytes(rank_, chunk)};
  }
  peer.in.pass();
  return Next::kTransfer;
}

void ReducePlan::received(int index) {
  if (progress_[index].result_expected) return;
  if (++arrived_ == static_cast<int>(progress_.size()) - 1) combine();
}

void ReducePlan::combine() {
  for (size_t i = 0; i < sources_.size(); ++i) sources_[i] = staging_ + i * chunk_;
  reduce(reduction_, own_input_, rank_, sources_, -1, own_output_, chunk_bytes(rank_, combined_));
  ++combined_;
  arrived_ = 0;
}

// ---- relay

RelayPlan::RelayPlan(int rank, int size, int root, const Pieces& data, size_t chunk)
    : root_(root), chunk_(chunk), progress_(size) {
  const size_t total = total_bytes(data);
  const size_t owners = size - 1;
  auto share_of = [&](int owner) {
    size_t index = owner < root ? owner : owner - 1;
    size_t from = total / owners * index + std::min(index, total % owners);
    size_t bytes = total / owners + (index < total % owners ? 1 : 0);
    return Share{Cursor(data, from), bytes};
  };
  for (int i = 0; i < size; ++i) {
    Progress& peer = progress_[i];
    if (rank == root) {
      if (i != root) peer.out = share_of(i);
    } else if (i == root) {
      peer.in = share_of(rank);
    } else if (i != rank) {
      peer.out = share_of(rank);
      peer.in = share_of(i);
    }
  }
  if (rank == root) present_ = total;
}

Next RelayPlan::send(int index, Transfer& transfer) {
  Progress& peer = progress_[index];
  if (peer.sent == peer.out.bytes) return Next::kEnd;
  size_t bytes = std::min(present_, peer.out.bytes) - peer.sent;
  if (bytes == 0) return Next::kLater;
  transfer = {&peer.out.place, bytes};
  peer.sent += bytes;
  return Next::kTransfer;
}

Next RelayPlan::receive(int index, Transfer& transfer) {
  Progress& peer = progress_[index];
  if (peer.in.bytes == 0) return Next::kEnd;
  // In chunks, because what has arrived is handed on only at the end of a transfer.
  size_t bytes = std::min(chunk_, peer.in.bytes);
  transfer = {&peer.in.place, bytes};
  peer.in.bytes -= bytes;
  if (index == root_) arriving_ = bytes;
  return Next::kTransfer;
}

void RelayPlan::received(int index) {
  if (index == root_) present_ += arriving_;
}

}  // namespace hvd
