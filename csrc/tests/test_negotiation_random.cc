// Negotiation against a reference, in random sequences: test_negotiation_random [sequences] [first seed].
//
// Simulated ranks follow the rules of Engine for names, joins, process sets and remembered requests, and talk
// to a real Negotiation over first-in-first-out queues, through a random tree of real Combinings; when they
// submit, when a message arrives, what is held back and when a rank runs what was released is up to chance. A
// failure prints its seed and what happened: run that one again with "1 <seed>".
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>

#include "engine/agreement.h"
#include "engine/negotiation.h"
#include "kinds.h"
#include "negotiation_program.h"
#include "negotiation_reference.h"
#include "negotiation_tree.h"

namespace {

using namespace sequences;

// How often things that matter have happened, to see that chance leaves nothing out.
struct Counts {
  size_t submitted, ok, mismatches, refused, invalid, fused, by_id, resent, evicted, stand_ins, joins, added,
      removed, held, cut_short, columns;
};
Counts counts{};

class Sequence {
 public:
  Sequence(uint64_t seed, bool verbose)
      : random_(seed),
        verbose_(verbose),
        size_(random_.pick({1, 2, 2, 3, 3, 4, 5, 6, 8})),
        knobs_(some_knobs(random_)),
        stray_joins_(random_.one_in(4)),
        spoiled_one_in_(random_.pick({8, 30, 1000})),
        late_one_in_(random_.pick({3, 40})),
        negotiation_(size_, knobs_),
        reference_(size_),
        ranks_(static_cast<size_t>(size_)),
        tree_(random_, &ranks_),
        arrived_(ranks_.size()) {
    say("%d ranks, fusion threshold %ld, cache capacity %d", size_,
        static_cast<long>(knobs_.fusion_threshold), knobs_.cache_capacity);
    const std::vector<Line> program = some_program(random_, size_, stray_joins_);
    for (int r = 0; r < size_; ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      rank.number = r;
      if (r > 0) say("rank %d is below rank %d", r, tree_.parent(r));
      for (int other = 0; other < size_; ++other) rank.sets[0].members.push_back(other);
      // Not quite the same order everywhere, and now and then one is left out.
      for (const Line& line : program)
        if (!random_.one_in(25)) rank.program.push_back(line);
      for (size_t i = 1; i < rank.program.size(); ++i)
        if (random_.one_in(3)) std::swap(rank.program[i - 1], rank.program[i]);
    }
  }

  void run() {
    const bool cut_short = random_.one_in(6);
    // Each sequence has its own idea of who is fast and who is slow.
    for (int& weight : weights_) weight = random_.pick({1, 3, 10});
    for (int steps = 0; step(); ++steps)
      if (cut_short && steps > 40 && random_.one_in(20)) return shut_down();
    come_to_rest();
    finish_what_is_open();
    check_nothing_is_left();
  }

 private:
  __attribute__((format(printf, 2, 3))) void say(const char* format, ...) const {
    if (!verbose_) return;
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
  }

  // One thing that happens somewhere. False when all programs have ended and everything has settled.
  bool step() {
    bool idle = true;
    int total = 0;
    for (int weight : weights_) total += weight;
    for (int tries = 0; tries < 60; ++tries) {
      Rank& rank = ranks_[static_cast<size_t>(random_.below(size_))];
      int choice = random_.below(total), action = 0;
      while (choice >= weights_[action]) choice -= weights_[action++];
      if (action == 0 && submit_next(rank)) return true;
      if (action == 1 && random_.one_in(late_one_in_) && tree_.settle(Tree::LetGo::kSome)) return true;
      if (action == 1 && deliver(rank)) return true;
      if (action == 2 && execute(rank)) return true;
      if (action == 3 && negotiation_.has_ready()) {
        std::vector<uint8_t> busy(ranks_.size());
        for (uint8_t& one : busy) one = random_.one_in(3);
        release(busy);
        return true;
      }
    }
    // Chance has found nothing to do, so there is little or nothing.
    for (Rank& rank : ranks_) {
      idle = idle && rank.next == rank.program.size();
      if (deliver(rank) || execute(rank)) return true;
    }
    if (tree_.settle(Tree::LetGo::kNone)) return true;
    if (negotiation_.has_ready())
      release(nobody_busy());
    else if (idle)
      return false;
    else
      give_up_waiting();
    return true;
  }

  // The ranks wait for each other: an application that is wrong. They go on with something else.
  void give_up_waiting() {
    for (Rank& rank : ranks_)
      if (rank.next < rank.program.size()) {
        ++rank.next;
        return;
      }
  }

  bool submit_next(Rank& rank) {
    if (rank.next == rank.program.size()) return false;
    const Line& line = rank.program[rank.next];
    auto set = rank.sets.find(line.kind == HVD_REMOVE_PROCESS_SET ? 0 : line.set);
    const bool member = set != rank.sets.end() &&
                        std::count(set->second.members.begin(), set->second.members.end(), rank.number) > 0;
    if (!member) {  // nothing for this rank, or it does not know the set yet
      if (random_.one_in(3)) ++rank.next;
      return true;
    }
    Request request = describe(line, rank.number, set->second.members);
    if (random_.one_in(spoiled_one_in_)) spoil(&request, random_, size_, stray_joins_);
    if (!rank.may_submit(request)) return false;
    ++rank.next;
    submit(rank, std::move(request));
    return true;
  }

  void submit(Rank& rank, Request request) {
    counts.submitted++;
    submissions_.push_back({static_cast<int>(submissions_.size()), rank.number, std::move(request)});
    Submission* submission = &submissions_.back();
    const Request& own = submission->request;
    const Key key{own.process_set, own.name};
    rank.pending[key] = submission;
    auto known = rank.ids.find(key);
    if (known != rank.ids.end()) {
      const Remembered& remembered = rank.cache.at(known->second);
      if (remembered.mine && same(remembered.request, own)) submission->sent_as = known->second;
    }
    say("rank %d submits #%d: kind %d '%s' of set %d, root %d, id %u", rank.number, submission->number,
        own.kind, own.name.c_str(), own.process_set, own.root_rank, submission->sent_as);
    counts.by_id += submission->sent_as != 0;
    rank.outbox.push_back(without_length(submission->sent_as != 0
                                             ? hvd::wire::encode_id(MessageType::kCached, submission->sent_as)
                                             : hvd::wire::encode_request(own)));
  }

  // A message goes one step.
  bool deliver(Rank& rank) {
    return tree_.deliver(rank, [this](const hvd::RankSet& ranks, MessageType type,
                                      const hvd::wire::Vote& vote) { count(ranks, type, vote); });
  }

  // Votes reach the coordinator.
  void count(const hvd::RankSet& ranks, MessageType type, const hvd::wire::Vote& vote) {
    std::vector<int> in_order;  // the last one to vote comes last
    ranks.each([&](int rank) {
      if (rank != vote.last) in_order.push_back(rank);
    });
    in_order.push_back(vote.last);
    if (type == MessageType::kShutdown) {
      for (int rank : in_order)
        for (const auto& entry : ranks_[static_cast<size_t>(rank)].pending) REQUIRE(entry.second->arrived);
      shutdown_arrived_ = true;
      return;
    }
    for (int rank : in_order) arrive(ranks_[static_cast<size_t>(rank)], type, vote);
    if (type == MessageType::kVotes) {
      negotiation_.votes(ranks, vote, {});
    } else if (type == MessageType::kResent) {
      negotiation_.resent(vote.last, vote.id, *vote.request, {});
    } else if (type == MessageType::kCached) {
      negotiation_.cached(vote.last, vote.id, {});
    } else {
      negotiation_.request(vote.last, *vote.request, {});
    }
    for (const auto& question : negotiation_.take_questions()) {
      REQUIRE(ranks.has(question.rank) && negotiation_.remembered(question.id) == nullptr);
      say("rank %d is asked what id %u was", question.rank, question.id);
      auto& arrived = arrived_[static_cast<size_t>(question.rank)];
      auto asked = std::find_if(arrived.begin(), arrived.end(), [&](const auto& entry) {
        return entry.second && entry.first->sent_as == question.id;
      });
      REQUIRE(asked != arrived.end());
      asked->second = false;
      tree_.send_to({question.rank}, true, hvd::wire::encode_id(MessageType::kResend, question.id));
    }
    // Votes count in the order in which the rank sent them.
    for (int rank : in_order) {
      auto& arrived = arrived_[static_cast<size_t>(rank)];
      for (; !arrived.empty() && arrived.front().second; arrived.pop_front())
        reference_.vote(arrived.front().first);
    }
    if (random_.one_in(16)) check_stalled();
  }

  void arrive(Rank& rank, MessageType type, const hvd::wire::Vote& vote) {
    const Request& meant = vote.request ? *vote.request : announced_.at(vote.id).common;
    auto pending = rank.pending.find({meant.process_set, meant.name});
    REQUIRE(pending != rank.pending.end());
    Submission* submission = pending->second;
    REQUIRE(vote.request ? same(*vote.request, submission->request) : submission->sent_as == vote.id);
    submission->arrived = true;
    say("#%d of rank %d arrives%s", submission->number, rank.number,
        type == MessageType::kResent ? " whole" : "");
    auto& arrived = arrived_[static_cast<size_t>(rank.number)];
    if (type != MessageType::kResent) return arrived.push_back({submission, true});
    for (auto& entry : arrived)
      if (entry.first == submission) entry.second = true;
  }

  void release(const std::vector<uint8_t>& busy) {
    const auto releases = negotiation_.release(busy);
    counts.held += negotiation_.has_ready();
    for (uint32_t id : negotiation_.take_evicted()) {
      REQUIRE(evicted_.insert(id).second);
      counts.evicted++;
      tree_.send_to(everyone(), false, hvd::wire::encode_id(MessageType::kEvict, id));
    }
    for (const auto& release : releases) {
      std::vector<reference::Operation*> expected;
      const hvd::wire::Operation& operation = release.operation;
      if (operation.code != HVD_OK) {
        REQUIRE(operation.text.find(operation.name) != std::string::npos ||
                operation.text.find("rocess set") != std::string::npos);
        expected = {take_unreleased(operation.process_set, operation.name, operation.code, *release.ranks)};
      }
      for (const auto& item : operation.items) {
        const Agreement& agreement = item.fresh ? *item.fresh : announced_.at(item.cached_id);
        REQUIRE(evicted_.count(agreement.id) == 0);
        if (item.fresh && agreement.id != 0) announced_[agreement.id] = agreement;
        expected.push_back(
            take_unreleased(agreement.common.process_set, agreement.common.name, HVD_OK, *release.ranks));
        check_agreement(agreement, expected.back()->agreement);
        REQUIRE(agreement.columns == expected.back()->agreement.columns);
      }
      if (operation.code == HVD_OK) counts.fused += check_fusion(expected, knobs_);
      for (int rank : *release.ranks) ranks_[static_cast<size_t>(rank)].expected.push_back(expected);
      tree_.release(*release.ranks, operation);
    }
  }

  reference::Operation* take_unreleased(int set, const std::string& name, int code,
                                        const std::vector<int>& audience) {
    say("released: '%s' of set %d with code %d to %zu ranks", name.c_str(), set, code, audience.size());
    for (auto it = reference_.unreleased.begin(); it != reference_.unreleased.end(); ++it) {
      reference::Operation* operation = *it;
      std::vector<int> voters;
      for (const auto& vote : operation->votes) voters.push_back(vote.first);
      if (operation->id != set || operation->name != name || operation->code != code) continue;
      if ((code == HVD_OK ? operation->set.members : voters) != audience) continue;
      reference_.unreleased.erase(it);
      counts.ok += code == HVD_OK;
      counts.mismatches += code == HVD_FAILED_PRECONDITION;
      counts.refused += code == HVD_ABORTED;
      counts.invalid += code == HVD_INVALID_ARGUMENT;
      return operation;
    }
    throw std::logic_error("'" + name + "' was released with an outcome or to ranks that are wrong");
  }

  // A rank is told, and remembers, what it gets in an alltoall, and at most its branch's besides.
  static void check_column(const Rank& rank, const Agreement& actual, const reference::Operation& expected) {
    REQUIRE(actual.columns.empty() == (actual.common.kind != HVD_ALLTOALL));
    if (actual.columns.empty()) return;
    const auto& members = expected.set.members;
    const auto own = std::lower_bound(members.begin(), members.end(), rank.number) - members.begin();
    const hvd::wire::Column* column = hvd::column_of(actual, static_cast<int>(own));
    REQUIRE(column != nullptr && *column == expected.agreement.columns[static_cast<size_t>(own)]);
    counts.columns++;
  }

  // A rank handles the next message, as Engine does.
  bool execute(Rank& rank) {
    if (rank.inbox.empty()) return false;
    hvd::wire::Message message;
    REQUIRE(hvd::wire::decode(rank.inbox.front().data(), rank.inbox.front().size(), &message));
    rank.inbox.pop_front();
    if (message.type == MessageType::kEvict) {
      auto found = rank.cache.find(message.id);
      if (found == rank.cache.end()) return true;
      auto named = rank.ids.find(found->second.key);
      if (named != rank.ids.end() && named->second == message.id) rank.ids.erase(named);
      rank.cache.erase(found);
      return true;
    }
    if (message.type == MessageType::kResend) {
      for (auto& entry : rank.pending) {
        if (entry.second->sent_as != message.id) continue;
        counts.resent++;
        entry.second->sent_as = 0;
        rank.outbox.push_back(without_length(hvd::wire::encode_resent(message.id, entry.second->request)));
        return true;
      }
      throw std::logic_error("a rank is asked for what it has not submitted");
    }
    const hvd::wire::Operation& operation = message.operation;
    REQUIRE(message.type == MessageType::kOperation && !rank.expected.empty());
    const std::vector<reference::Operation*> expected = std::move(rank.expected.front());
    rank.expected.pop_front();
    say("rank %d runs '%s' of set %d%s", rank.number, expected[0]->name.c_str(), expected[0]->id,
        expected.size() > 1 ? " and others" : "");
    if (operation.code != HVD_OK) {
      end(rank, {operation.process_set, operation.name}, *expected[0]);
      return true;
    }
    REQUIRE(operation.items.size() == expected.size());
    for (size_t i = 0; i < operation.items.size(); ++i) run(rank, operation.items[i], *expected[i]);
    return true;
  }

  void run(Rank& rank, const hvd::wire::Item& item, const reference::Operation& expected) {
    const Agreement agreement = item.fresh ? *item.fresh : rank.cache.at(item.cached_id).agreement;
    check_agreement(agreement, expected.agreement);
    check_column(rank, agreement, expected);
    REQUIRE(rank.sets.at(agreement.common.process_set).incarnation == expected.set.incarnation);
    const Key key{agreement.common.process_set, agreement.common.name};
    auto own = rank.pending.find(key);
    if (item.fresh && agreement.id != 0) {
      Remembered& remembered = rank.cache[agreement.id];
      remembered = {agreement, key, own != rank.pending.end(), {}};
      if (remembered.mine) remembered.request = own->second->request;
      rank.ids[key] = agreement.id;
    }
    if (expected.votes.count(rank.number)) {
      end(rank, key, expected);
    } else {  // only a joined rank stands in, and it has nothing of that name
      REQUIRE(rank.has_pending(HVD_JOIN) && own == rank.pending.end());
    }
    const int id = static_cast<int>(agreement.result);
    counts.joins += agreement.common.kind == HVD_JOIN;
    if (agreement.common.kind == HVD_ADD_PROCESS_SET) {
      const auto& numbers = agreement.common.numbers;
      counts.added++;
      // All ranks see the sets come in the same order, so counting tells them apart everywhere.
      REQUIRE(rank.sets.count(id) == 0);
      rank.sets[id] = {++incarnations_[rank.number], {numbers.begin(), numbers.end()}};
    }
    if (agreement.common.kind == HVD_REMOVE_PROCESS_SET) {
      counts.removed++;
      REQUIRE(rank.sets.erase(id) == 1);
      for (const auto& entry : rank.pending) REQUIRE(entry.first.first != id);
    }
  }

  void end(Rank& rank, const Key& key, const reference::Operation& expected) {
    auto own = rank.pending.find(key);
    REQUIRE(own != rank.pending.end());
    REQUIRE(own->second == expected.votes.at(rank.number));
    own->second->ended++;
    rank.pending.erase(own);
  }

  std::vector<int> everyone() const { return ranks_[0].sets.at(0).members; }
  std::vector<uint8_t> nobody_busy() const { return std::vector<uint8_t>(ranks_.size(), 0); }

  void come_to_rest() {
    for (bool late : {false, true}) {
      for (bool moved = true; moved;) {
        moved = negotiation_.has_ready();
        if (moved) release(nobody_busy());
        for (Rank& rank : ranks_) {
          while (deliver(rank)) moved = true;
          while (execute(rank)) moved = true;
        }
        moved |= tree_.settle(late ? Tree::LetGo::kAll : Tree::LetGo::kNone);
      }
      if (!late) check_nothing_waits_for_nobody();
    }
    REQUIRE(reference_.unreleased.empty());
    check_stalled();
  }

  // Votes are held only as long as others are missing.
  void check_nothing_waits_for_nobody() const {
    for (const Rank& rank : ranks_)
      for (const auto& [key, submission] : rank.pending) {
        bool missing = false;
        for (int member : rank.sets.at(key.first).members) {
          const Rank& other = ranks_[static_cast<size_t>(member)];
          missing |= other.pending.count(key) == 0 &&
                     (reference::of_everyone(submission->request.kind) || !other.has_pending(HVD_JOIN));
        }
        REQUIRE(missing);
      }
  }

  // Whoever can votes for what is still open; those who have joined are freed when all the others join, too.
  void finish_what_is_open() {
    for (int round = 0; round < 20 && !reference_.open.empty(); ++round) {
      for (const reference::Operation* operation : std::list<reference::Operation*>(reference_.open)) {
        const Request& first = operation->votes.begin()->second->request;
        for (int member : operation->set.members) {
          Rank& rank = ranks_[static_cast<size_t>(member)];
          if (reference_.missing(*operation, member) && rank.may_submit(first)) submit(rank, first);
        }
      }
      come_to_rest();
    }
  }

  void check_nothing_is_left() {
    REQUIRE(reference_.open.empty() && !negotiation_.has_votes() && !negotiation_.has_ready());
    for (const auto& arrived : arrived_) REQUIRE(arrived.empty());
    for (const Submission& submission : submissions_) REQUIRE(submission.ended == 1);
    for (const Rank& rank : ranks_) {
      REQUIRE(rank.pending.empty() && rank.expected.empty());
      REQUIRE(rank.cache.size() <= static_cast<size_t>(knobs_.cache_capacity));
      for (const auto& entry : rank.cache) {
        REQUIRE(negotiation_.remembered(entry.first) != nullptr);
        REQUIRE(rank.ids.at(entry.second.key) == entry.first);
      }
    }
    tree_.check_nothing_is_left(ranks_[0].sets.size(), static_cast<size_t>(knobs_.cache_capacity));
    counts.stand_ins += reference_.stand_ins;
  }

  // One rank asks for it, after all that it has submitted. Everyone runs what was released before; the rest
  // fails. Nothing may end twice.
  void shut_down() {
    counts.cut_short++;
    Rank& first = ranks_[static_cast<size_t>(random_.below(size_))];
    say("rank %d shuts down", first.number);
    first.outbox.push_back(without_length(hvd::wire::encode_text(MessageType::kShutdown, "")));
    while (!shutdown_arrived_) {
      for (Rank& rank : ranks_)
        if (random_.one_in(2)) deliver(rank);
      if (random_.one_in(4)) tree_.settle(Tree::LetGo::kNone);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) {
        while (tree_.deliver_down(rank)) moved = true;
        while (execute(rank)) {
        }
      }
    }
    for (Rank& rank : ranks_) {
      for (const auto& entry : rank.pending) entry.second->ended++;
    }
    for (const Submission& submission : submissions_) REQUIRE(submission.ended == 1);
  }

  void check_stalled() {
    const auto stalled = negotiation_.stalled({}, 0);
    size_t index = 0;
    for (const reference::Operation* operation : reference_.open) {
      if (operation->first_kind == HVD_JOIN) continue;
      std::vector<int> ready, missing;
      for (int rank : operation->set.members) {
        if (operation->votes.count(rank)) ready.push_back(rank);
        if (reference_.missing(*operation, rank)) missing.push_back(rank);
      }
      REQUIRE(index < stalled.size() && stalled[index].name == operation->name);
      REQUIRE(stalled[index].ready == ready && stalled[index].missing == missing);
      ++index;
    }
    REQUIRE(index == stalled.size());
  }

  Random random_;
  const bool verbose_;
  const int size_;
  const hvd_knobs knobs_;
  const bool stray_joins_;
  const int spoiled_one_in_, late_one_in_;
  int weights_[4] = {};
  hvd::Negotiation negotiation_;
  reference::Negotiation reference_;
  std::vector<Rank> ranks_;
  Tree tree_;
  std::deque<Submission> submissions_;
  // [rank]: what has reached the coordinator but is not counted; false = it does not know what it is.
  std::vector<std::deque<std::pair<Submission*, bool>>> arrived_;
  std::set<uint32_t> evicted_;
  std::map<uint32_t, Agreement> announced_;
  std::map<int, int> incarnations_;
  bool shutdown_arrived_ = false;
};

bool passes(uint64_t seed, bool verbose) {
  try {
    Sequence(seed, verbose).run();
    return true;
  } catch (const std::exception& error) {
    if (verbose)
      std::fprintf(stderr, "seed %llu failed: %s\n", static_cast<unsigned long long>(seed), error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t sequences = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  for (uint64_t i = 0; i < sequences; ++i) {
    if (passes(first + i, false)) continue;
    passes(first + i, true);
    return 1;
  }
  const Counts& c = counts;
  const Tree::Counts& t = Tree::counts;
  std::printf("%llu sequences, %zu submissions, %zu by id, %zu sent again; %zu evicted\n",
              static_cast<unsigned long long>(sequences), c.submitted, c.by_id, c.resent, c.evicted);
  std::printf(
      "%zu agreed, %zu with joined ranks, %zu fused; failed: %zu mismatches, %zu not allowed, %zu invalid\n",
      c.ok, c.stand_ins, c.fused, c.mismatches, c.refused, c.invalid);
  std::printf("%zu votes combined, %zu let go, %zu frames for some of a branch\n", t.combined, t.let_go,
              t.named);
  std::printf("%zu joins, %zu sets added, %zu removed (by rank); %zu times held back, %zu shut down early\n",
              c.joins, c.added, c.removed, c.held, c.cut_short);
  for (size_t count :
       {c.by_id, c.resent, c.evicted, c.ok, c.stand_ins, c.fused, c.mismatches, c.refused, c.invalid, c.joins,
        c.added, c.removed, c.held, c.cut_short, c.columns, t.combined, t.let_go, t.named})
    if (sequences >= 1000 && count == 0) {
      std::fprintf(stderr, "chance has left something out\n");
      return 1;
    }
  std::printf("1 passed, 0 failed\n");
  return 0;
}
