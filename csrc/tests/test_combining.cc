// What a rank with others below it passes on, and when; and the shape of the tree.
#include <chrono>
#include <string>
#include <vector>

#include "check.h"
#include "engine/branches.h"
#include "engine/combining.h"
#include "engine/rank_set.h"
#include "wire/messages.h"

using namespace hvd;
using wire::MessageType;

namespace {

using Frame = std::vector<uint8_t>;

RankSet set_of(int size, std::initializer_list<int> ranks) {
  RankSet set(size);
  for (int rank : ranks) set.add(rank);
  return set;
}

// Rank 1 of five, above 2 and 3, of which 3 is above 4. Branches: 1, 2, 3 with 4.
class Node {
 public:
  Node() : combining_(5, branches_of(1, {0, 0, 1, 1, 3})) {}

  // From one of its ranks, in the way in which it comes.
  void from(int rank, const Frame& frame) {
    const Frame body(frame.begin() + 4, frame.end());
    if (rank < 3) {
      CHECK(combining_.from_branch(static_cast<size_t>(rank - 1), body.data(), body.size(), now));
      return;
    }
    const Frame wrapped = wire::wrap(MessageType::kFrom, {rank, 1}, body.data(), body.size());
    CHECK(combining_.from_branch(2, wrapped.data() + 4, wrapped.size() - 4, now));
  }
  void above(const Frame& frame) { CHECK(combining_.from_above(frame.data() + 4, frame.size() - 4)); }

  // What has gone up: "1-3:7,9" for votes by id, "4:a" by name, "2:shutdown".
  std::vector<std::string> up() {
    std::vector<std::string> texts;
    for (const Frame& frame : combining_.take_up()) {
      std::vector<int32_t> rows;
      const uint8_t* data = nullptr;
      size_t size = 0;
      wire::Message message;
      CHECK(wire::unwrap(frame.data() + 4, frame.size() - 4, &rows, &data, &size));
      CHECK(wire::decode(data, size, &message));
      std::string text;
      for (size_t i = 0; i < rows.size(); i += 2)
        text += (i ? "," : "") + std::to_string(rows[i]) +
                (rows[i + 1] > 1 ? "-" + std::to_string(rows[i] + rows[i + 1] - 1) : "");
      text += ":";
      for (size_t i = 0; i < message.votes.size(); ++i)
        text += (i ? "," : "") + (message.votes[i].request ? message.votes[i].request->name
                                                           : std::to_string(message.votes[i].id));
      if (message.type == MessageType::kShutdown) text += "shutdown";
      if (message.type == MessageType::kDone) text += "done";
      if (message.type == MessageType::kResent) text += "resent";
      texts.push_back(text);
      for (const wire::Vote& vote : message.votes) last = vote;
    }
    return texts;
  }
  // Everyone's operation that is known by this id from here on.
  void agree(uint32_t id, const std::string& name) {
    wire::Operation operation;
    operation.items.resize(1);
    operation.items[0].fresh.emplace();
    operation.items[0].fresh->id = id;
    operation.items[0].fresh->common.name = name;
    above(wire::encode_operation(operation));
  }
  std::vector<Combining::Down> down() { return combining_.take_down(); }
  Combining& combining() { return combining_; }

  Combining::Time now = Combining::Time(std::chrono::seconds(1000));
  wire::Vote last;

 private:
  Combining combining_;
};

Frame by_id(uint32_t id) { return wire::encode_id(MessageType::kCached, id); }
Frame whole(const std::string& name, int kind = HVD_ALLREDUCE, double prescale = 1.0) {
  wire::Request request;
  request.kind = kind;
  request.name = name;
  request.prescale = prescale;
  return wire::encode_request(request);
}

using Texts = std::vector<std::string>;

}  // namespace

TEST(rank_sets_are_sets) {
  RankSet set = set_of(200, {0, 1, 2, 64, 130, 131, 199});
  CHECK(set.count() == 7 && set.has(64) && !set.has(65) && !set.empty());
  CHECK((set.rows() == std::vector<int32_t>{0, 3, 64, 1, 130, 2, 199, 1}));
  RankSet again(200);
  CHECK(again.add_rows(set.rows()) && again == set && again.covers(set) && set.meets(again));
  again.remove(64);
  CHECK(set.covers(again) && !again.covers(set));
  for (const std::vector<int32_t>& bad :
       std::vector<std::vector<int32_t>>{{1}, {-1, 1}, {0, 0}, {199, 2}, {200, 1}, {1, 2147483647}})
    CHECK(!RankSet(200).add_rows(bad));
}

TEST(a_tree_has_branches) {
  const std::vector<int> parents = {0, 0, 0, 1, 1, 3};
  CHECK(is_tree(parents) && is_tree({0}) && is_tree({0, 0, 0}));
  CHECK(!is_tree({0, 2, 1}) && !is_tree({1, 0}) && !is_tree({0, 7}) && !is_tree({0, -1}) && !is_tree({}));
  auto branches = branches_of(0, parents);
  CHECK(branches.size() == 3 && branches[0].ranks == set_of(6, {0}) && branches[0].leaf);
  CHECK(branches[1].rank == 1 && branches[1].ranks == set_of(6, {1, 3, 4, 5}) && !branches[1].leaf);
  CHECK(branches[2].rank == 2 && branches[2].leaf);
  branches = branches_of(1, parents);
  CHECK(branches.size() == 3 && branches[0].ranks == set_of(6, {1}) && branches[0].leaf);
  CHECK(branches[1].ranks == set_of(6, {3, 5}) && branches[2].ranks == set_of(6, {4}));
  CHECK(branches_of(5, parents).size() == 1);
}

TEST(votes_go_up_as_one_when_all_have_voted) {
  Node node;
  node.agree(7, "a");
  node.agree(9, "b");
  for (int rank : {4, 1, 3}) node.from(rank, by_id(7));
  for (int rank : {1, 3, 4}) node.from(rank, by_id(9));
  CHECK(node.up().empty());
  node.now += std::chrono::milliseconds(30);
  node.from(2, by_id(7));
  node.from(2, by_id(9));
  CHECK((node.up() == Texts{"1-4:7,9"}));
  CHECK(node.last.last == 2 && node.last.waited_ns == 30'000'000);
  // And again, when it is over.
  node.agree(7, "a");
  for (int rank : {1, 2, 3}) node.from(rank, by_id(7));
  CHECK(node.up().empty());
  node.from(4, by_id(7));
  CHECK((node.up() == Texts{"1-4:7"}));
}

TEST(equal_requests_are_one_and_others_are_not_held) {
  Node node;
  for (int rank : {1, 2, 3, 4}) node.from(rank, whole("a"));
  CHECK((node.up() == Texts{"1-4:a"}));
  node.agree(7, "b");
  node.from(1, by_id(7));
  node.from(2, by_id(7));
  CHECK(node.up().empty());
  node.from(3, whole("b", HVD_ALLREDUCE, 2.0));  // means something else by it
  CHECK((node.up() == Texts{"1-2:7", "3:b"}));
  node.from(4, by_id(7));
  CHECK((node.up() == Texts{"4:7"}));
}

TEST(a_join_goes_after_the_votes_of_its_rank_and_is_not_waited_for) {
  Node node;
  node.agree(7, "a");
  node.agree(8, "b");
  node.from(1, by_id(7));
  node.from(2, by_id(8));
  node.from(1, whole("join", HVD_JOIN));
  CHECK((node.up() == Texts{"1:7,join"}));
  node.from(3, by_id(8));
  node.from(4, by_id(8));
  CHECK((node.up() == Texts{"2-4:8"}));
  // Those whose votes wait for nobody else go when the join comes.
  node.agree(9, "c");
  node.from(3, by_id(9));
  node.from(4, by_id(9));
  node.from(2, whole("join", HVD_JOIN));
  CHECK((node.up() == Texts{"2:join", "3-4:9"}));
  // When the join is over, all are waited for again.
  wire::Operation operation;
  operation.items.resize(1);
  operation.items[0].fresh.emplace();
  operation.items[0].fresh->common.kind = HVD_JOIN;
  operation.items[0].fresh->common.name = "join";
  node.above(wire::encode_operation(operation));
  node.agree(9, "c");
  for (int rank : {3, 4, 2}) node.from(rank, by_id(9));
  CHECK(node.up().empty());
  node.from(1, by_id(9));
  CHECK((node.up() == Texts{"1-4:9"}));
}

TEST(a_change_of_process_sets_under_the_name_of_something_else_holds_nothing_up) {
  Node node;
  node.from(1, whole("a"));
  node.from(2, whole("a", HVD_ADD_PROCESS_SET));
  CHECK((node.up() == Texts{"2:a", "1:a"}));
}

TEST(a_join_that_has_failed_is_none) {
  Node node;
  node.from(1, whole("a", HVD_JOIN));
  node.from(2, whole("a"));
  wire::Operation failed;
  failed.code = HVD_INVALID_ARGUMENT;
  failed.name = "a";
  const Frame frame = wire::encode_operation(failed);
  node.above(wire::wrap(MessageType::kTo, {1, 2}, frame.data() + 4, frame.size() - 4));
  node.up();
  for (int rank : {2, 3, 4}) node.from(rank, whole("b"));
  CHECK(node.up().empty());
  node.from(1, whole("b"));
  CHECK((node.up() == Texts{"1-4:b"}));
}

TEST(a_shutdown_goes_after_the_votes_of_its_rank_and_reports_pass) {
  Node node;
  node.agree(7, "a");
  node.from(3, by_id(7));
  node.from(1, wire::encode_simple(MessageType::kDone));
  CHECK((node.up() == Texts{"1:done"}));
  node.from(3, wire::encode_text(MessageType::kShutdown, ""));
  CHECK((node.up() == Texts{"3:7", "3:shutdown"}));
}

TEST(what_waits_for_too_long_is_let_go) {
  Node node;
  node.agree(7, "a");
  node.agree(8, "b");
  CHECK(node.combining().held_since() == Combining::Time::max());
  node.from(1, by_id(7));
  const auto since = node.now;
  node.now += std::chrono::seconds(1);
  node.from(3, by_id(8));
  CHECK(node.combining().held_since() == since);
  node.combining().let_go(since, node.now);
  CHECK((node.up() == Texts{"1:7"}));
  CHECK(node.last.waited_ns == 1'000'000'000 && node.combining().held_since() == node.now);
  for (int rank : {2, 3, 4}) node.from(rank, by_id(7));
  CHECK((node.up() == Texts{"2-4:7"}));
}

TEST(what_has_waited_longest_is_let_go_first) {
  Node node;
  for (uint32_t id : {1, 2, 3, 4, 5}) node.agree(id, "name " + std::to_string(id));
  for (uint32_t id : {3, 1, 5, 2, 4}) {
    node.now += std::chrono::milliseconds(1);
    node.from(1, by_id(id));
  }
  node.combining().let_go(node.now, node.now);
  CHECK((node.up() == Texts{"1:3,1,5,2,4"}));
}

TEST(forgotten_numbers_are_asked_for) {
  Node node;
  node.agree(7, "a");
  node.from(1, by_id(7));
  node.above(wire::encode_id(MessageType::kEvict, 7));
  node.from(2, by_id(7));
  CHECK((node.up() == Texts{"2:7"}));
  node.from(3, whole("a"));
  CHECK((node.up() == Texts{"1:7", "3:a"}));  // rank 1 may have meant something else
  wire::Request request;
  request.name = "a";
  node.from(1, wire::encode_resent(7, request));
  CHECK((node.up() == Texts{"1:resent"}));
}

TEST(frames_go_down_to_those_concerned) {
  Node node;
  node.agree(7, "a");
  auto down = node.down();
  CHECK(down.size() == 3 && down[2].branch == 0);  // its own engine last
  const Frame failure = [] {
    wire::Operation operation;
    operation.code = HVD_INVALID_ARGUMENT;
    operation.name = "x";
    return wire::encode_operation(operation);
  }();
  node.above(wire::wrap(MessageType::kTo, {2, 1, 4, 1}, failure.data() + 4, failure.size() - 4));
  down = node.down();
  CHECK(down.size() == 2 && down[0].branch == 2 && down[1].branch == 1);
  CHECK(down[1].frame == failure);  // rank 2 has nobody below
  std::vector<int32_t> rows;
  const uint8_t* data = nullptr;
  size_t size = 0;
  CHECK(wire::unwrap(down[0].frame.data() + 4, down[0].frame.size() - 4, &rows, &data, &size));
  CHECK((rows == std::vector<int32_t>{4, 1}) &&
        Frame(data, data + size) == Frame(failure.begin() + 4, failure.end()));
}

TEST(votes_of_a_process_set_wait_for_its_members_only) {
  Node node;
  wire::Operation added;
  added.items.resize(1);
  added.items[0].fresh.emplace();
  added.items[0].fresh->common.kind = HVD_ADD_PROCESS_SET;
  added.items[0].fresh->common.numbers = {0, 2, 4};
  added.items[0].fresh->result = 1;
  node.above(wire::encode_operation(added));
  node.down();
  wire::Request request;
  request.name = "a";
  request.process_set = 1;
  node.from(4, wire::encode_request(request));
  CHECK(node.up().empty());
  node.from(2, wire::encode_request(request));
  CHECK((node.up() == Texts{"2,4:a"}));
  wire::Operation run;
  run.process_set = 1;
  run.items.resize(1);
  run.items[0].fresh.emplace();
  run.items[0].fresh->common = request;
  node.above(wire::encode_operation(run));
  const auto down = node.down();
  CHECK(down.size() == 2 && down[0].branch == 2 && down[1].branch == 1);
}

TEST(messages_of_others_are_refused) {
  Node node;
  const Frame vote = by_id(7);
  auto refused = [&](size_t branch, const Frame& frame) {
    return !node.combining().from_branch(branch, frame.data() + 4, frame.size() - 4, node.now);
  };
  CHECK(refused(2, vote));  // rank 3 has others below it, and does not say whose this is
  for (std::vector<int32_t> ranks : std::vector<std::vector<int32_t>>{{2, 1}, {3, 3}, {0, 1}, {3}, {}})
    CHECK(refused(2, wire::wrap(MessageType::kFrom, ranks, vote.data() + 4, vote.size() - 4)));
  CHECK(refused(2, wire::wrap(MessageType::kFrom, {3, 2}, vote.data() + 4, vote.size() - 4)));  // of one rank
  CHECK(!refused(2, wire::wrap(MessageType::kFrom, {4, 1}, vote.data() + 4, vote.size() - 4)));
  const Frame votes = wire::encode_votes({{7, {}, 2, 0}});
  CHECK(refused(2, wire::wrap(MessageType::kFrom, {3, 2}, votes.data() + 4, votes.size() - 4)));  // last is 2
  CHECK(refused(0, votes));
  // From above: for ranks that are not below, or for a process set that there is not.
  auto refused_from_above = [&](const Frame& frame) {
    return !node.combining().from_above(frame.data() + 4, frame.size() - 4);
  };
  for (std::vector<int32_t> ranks : std::vector<std::vector<int32_t>>{{0, 1}, {0, 3}, {4, 2}, {4}})
    CHECK(refused_from_above(wire::wrap(MessageType::kTo, ranks, vote.data() + 4, vote.size() - 4)));
  CHECK(!refused_from_above(wire::wrap(MessageType::kTo, {1, 2, 4, 1}, vote.data() + 4, vote.size() - 4)));
  wire::Operation unknown;
  unknown.process_set = 7;
  unknown.items.resize(1);
  unknown.items[0].fresh.emplace();
  CHECK(refused_from_above(wire::encode_operation(unknown)));
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
