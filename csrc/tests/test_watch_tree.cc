// Watches in a tree: whichever rank dies or falls silent, everyone else hears of it, and who it was; and what
// rank 0 and the others tell each other finds its way.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/abort_signal.h"
#include "check.h"
#include "engine/branches.h"
#include "engine/clock_offset.h"
#include "engine/progress_below.h"
#include "engine/watch.h"
#include "wire/messages.h"

namespace {

using Clock = std::chrono::steady_clock;
using hvd::AbortSignal;
using hvd::PeerProcess;
using hvd::Status;
using hvd::Watch;

constexpr double kTimeout = 1.5;
constexpr Watch::Timeouts kTimeouts{kTimeout, kTimeout};
constexpr hvd_peer kElsewhere = {"elsewhere", 1, 0};

// Of each rank, in a tree with at most `fan_out` below one.
std::vector<int> regular_tree(int size, int fan_out) {
  std::vector<int> parents = {0};
  for (int rank = 1; rank < size; ++rank) parents.push_back((rank - 1) / fan_out);
  return parents;
}

// The two ends of the connection of a rank to the one above.
std::pair<int, int> connect() {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  return {pair[0], pair[1]};
}

class Tree {
 public:
  struct Heard {
    std::map<int, std::vector<hvd::wire::Progress>> progress;
    std::vector<std::pair<int, hvd::wire::Message>> messages;
    hvd::wire::ClockOffset root;
  };

  // `played`: a rank whose end of the one connection that it has is the test's.
  explicit Tree(std::vector<int> parents, int played = -1, Watch::Timeouts timeouts = kTimeouts)
      : parents_(std::move(parents)), nodes_(parents_.size()) {
    std::vector<std::vector<Watch::Watched>> watched(nodes_.size());
    for (int rank = 1; rank < size(); ++rank) {
      const int above = parents_[static_cast<size_t>(rank)];
      const auto [up, down] = connect();
      add(&watched, rank, above, up, played);
      add(&watched, above, rank, down, played);
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == played) continue;
      Node& node = nodes_[static_cast<size_t>(rank)];
      node.watch = std::make_unique<Watch>(rank, parents_, std::move(watched[static_cast<size_t>(rank)]),
                                           timeouts, &node.abort, hooks(rank, &node));
    }
    for (Node& node : nodes_)
      if (node.watch) node.watch->start();
  }
  ~Tree() {
    for (Node& node : nodes_) node.watch.reset();
    for (int fd : kept_) close(fd);
  }

  int size() const { return static_cast<int>(parents_.size()); }
  void kill(int rank) { nodes_[static_cast<size_t>(rank)].watch.reset(); }
  // It is as good as stopped: its connections stay, and nothing more is said.
  void silence(int rank) {
    Node& node = nodes_[static_cast<size_t>(rank)];
    for (int fd : node.fds) kept_.push_back(dup(fd));
    node.watch.reset();
  }
  void abort(int rank, const std::string& reason) {
    nodes_[static_cast<size_t>(rank)].abort.raise(Status::unknown(reason).blame(rank));
  }
  void expect_closing() {
    for (Node& node : nodes_) node.watch->expect_closing();
  }
  void post(int from, int to, std::vector<uint8_t> frame) {
    nodes_[static_cast<size_t>(from)].watch->post(to, std::move(frame));
  }
  // What a rank has been told by then, which must be within the time of a silence.
  Status told(int rank) {
    CHECK(nodes_[static_cast<size_t>(rank)].abort.raised_within(std::chrono::seconds(100)));
    return nodes_[static_cast<size_t>(rank)].abort.reason();
  }
  bool raised(int rank) const { return nodes_[static_cast<size_t>(rank)].abort.raised(); }
  // Waits until what a rank has heard is as wanted.
  template <typename Wanted>
  void wait_for(int rank, Wanted wanted) {
    const auto end = Clock::now() + std::chrono::seconds(100);
    for (;; usleep(2000)) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (wanted(nodes_[static_cast<size_t>(rank)].heard)) return;
      CHECK(Clock::now() < end);
    }
  }
  hvd::wire::Channel& channel() { return channel_; }

 private:
  struct Node {
    AbortSignal abort;
    Heard heard;
    std::vector<int> fds;
    std::unique_ptr<Watch> watch;
  };

  void add(std::vector<std::vector<Watch::Watched>>* watched, int rank, int peer, int fd, int played) {
    if (rank == played) {
      channel_ = hvd::wire::Channel(fd);
      return;
    }
    nodes_[static_cast<size_t>(rank)].fds.push_back(fd);
    (*watched)[static_cast<size_t>(rank)].push_back({PeerProcess(peer, kElsewhere), hvd::wire::Channel(fd)});
  }
  Watch::Hooks hooks(int rank, Node* node) {
    Watch::Hooks hooks;
    if (rank != 0)
      hooks.own_progress = [rank] {
        hvd::wire::Progress progress;
        progress.steps = static_cast<uint64_t>(rank) + 100;
        return progress;
      };
    hooks.progress = [=](int from, const hvd::wire::Progress& progress) {
      std::lock_guard<std::mutex> lock(mutex_);
      node->heard.progress[from].push_back(progress);
    };
    hooks.received = [=](int from, const hvd::wire::Message& message) {
      std::lock_guard<std::mutex> lock(mutex_);
      node->heard.messages.emplace_back(from, message);
    };
    hooks.clock = [=](const hvd::wire::ClockOffset& root) {
      std::lock_guard<std::mutex> lock(mutex_);
      node->heard.root = root;
    };
    return hooks;
  }

  const std::vector<int> parents_;
  std::vector<int> kept_;
  hvd::wire::Channel channel_;
  std::mutex mutex_;  // guards what nodes have heard
  std::vector<Node> nodes_;
};

// Everybody but `victims` hears of the abort, and that one of `culprits` is to blame. Whoever has heard it
// ends, as processes do.
void check_all_name(Tree* tree, const std::set<int>& victims, const std::set<int>& culprits,
                    const std::string& words) {
  for (int rank = 0; rank < tree->size(); ++rank) {
    if (victims.count(rank) > 0) continue;
    const Status reason = tree->told(rank);
    if (culprits.count(reason.culprit()) == 0 || reason.text().find(words) == std::string::npos) {
      std::fprintf(stderr, "rank %d: %s (%d)\n", rank, reason.text().c_str(), reason.culprit());
      CHECK(false);
    }
    CHECK(reason.text().find("rank " + std::to_string(reason.culprit()) + " ") != std::string::npos);
    tree->kill(rank);
  }
}

struct Shape {
  int size, fan_out;
};
constexpr Shape kShapes[] = {{7, 2}, {13, 3}, {5, 1}, {4, 3}};

}  // namespace

TEST(the_next_one_on_the_way_to_a_rank) {
  //        0
  //      1   2
  //     3 4   5
  //     6
  const std::vector<int> parents = {0, 0, 0, 1, 1, 2, 3};
  CHECK(hvd::next_hop(0, 6, parents) == 1 && hvd::next_hop(1, 6, parents) == 3);
  CHECK(hvd::next_hop(3, 6, parents) == 6 && hvd::next_hop(6, 6, parents) == -1);
  CHECK(hvd::next_hop(6, 0, parents) == 3 && hvd::next_hop(3, 0, parents) == 1);
  CHECK(hvd::next_hop(4, 6, parents) == 1 && hvd::next_hop(2, 6, parents) == 0);
  CHECK(hvd::next_hop(0, 2, parents) == 2 && hvd::next_hop(0, 0, parents) == -1);
  // Every way ends, in any tree.
  std::mt19937 random(1);
  for (int size = 1; size < 40; ++size) {
    std::vector<int> any = {0};
    for (int rank = 1; rank < size; ++rank)
      any.push_back(static_cast<int>(random() % static_cast<unsigned>(rank)));
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        int steps = 0;
        for (int at = from; at != to; at = hvd::next_hop(at, to, any)) CHECK(++steps < 2 * size);
      }
  }
}

TEST(patience_is_as_long_as_a_silence_may_be_but_ends) {
  using std::chrono::seconds;
  CHECK(Watch::Timeouts{}.patience() == seconds(10));
  CHECK((Watch::Timeouts{20, 5}.patience() == seconds(20)));
  for (double never : {1e7, 1e299}) CHECK((Watch::Timeouts{3, never}.patience() == seconds(60)));
}

TEST(clocks_add_up_along_the_way) {
  // The neighbour's clock is 1000 ahead; a message takes 10 there and 30 back.
  const hvd::wire::Clock theirs{1500 + 1000, 400, 410 + 1000, {7, 5, true}};
  const hvd::wire::ClockOffset neighbour = hvd::neighbour_offset(theirs, 1530);
  CHECK(neighbour.known && neighbour.offset == 990 && neighbour.round_trip == 40);
  const hvd::wire::ClockOffset root = hvd::beyond(neighbour, theirs.root);
  CHECK(root.known && root.offset == 997 && root.round_trip == 45);
  CHECK(!hvd::beyond(neighbour, {}).known && !hvd::beyond({}, neighbour).known);
  CHECK(!hvd::neighbour_offset({5, 0, 0, {}}, 9).known);
}

TEST(progress_that_waits_grows_older) {
  hvd::ProgressBelow below;
  const Clock::time_point now{};
  hvd::wire::RankProgress idle{4, {}}, running{5, {}};
  idle.progress.idle_ns = 10;
  running.progress.running_ns = 20;
  below.add(running, now);
  running.progress.running_ns = 30;
  below.add(running, now + std::chrono::nanoseconds(50));
  below.add(idle, now);
  const auto all = below.take(now + std::chrono::nanoseconds(100));
  CHECK(all.size() == 2 && all[0].rank == 4 && all[1].rank == 5);  // of each the latest
  CHECK(all[0].progress.idle_ns == 110 && all[0].progress.running_ns == 0);
  CHECK(all[1].progress.running_ns == 80);
  CHECK(below.take(now).empty());
}

TEST(all_name_the_rank_that_died_wherever_it_was) {
  for (const Shape& shape : kShapes)
    for (int victim = 0; victim < shape.size; ++victim) {
      Tree tree(regular_tree(shape.size, shape.fan_out));
      tree.kill(victim);
      check_all_name(&tree, {victim}, {victim}, "closed its connection");
    }
}

TEST(all_name_the_rank_that_fell_silent_wherever_it_was) {
  for (const Shape& shape : kShapes) {
    // At once, as each takes its time.
    std::vector<std::unique_ptr<Tree>> trees;
    for (int victim = 0; victim < shape.size; ++victim)
      trees.push_back(std::make_unique<Tree>(regular_tree(shape.size, shape.fan_out)));
    usleep(600'000);  // all have heard each other
    for (int victim = 0; victim < shape.size; ++victim) trees[static_cast<size_t>(victim)]->silence(victim);
    for (int victim = 0; victim < shape.size; ++victim)
      check_all_name(trees[static_cast<size_t>(victim)].get(), {victim}, {victim}, "has been silent");
  }
}

// CHECK_SEED repeats one.
TEST(random_trees_in_which_several_things_happen_at_once) {
  const char* wanted = std::getenv("CHECK_SEED");
  const unsigned first = wanted ? static_cast<unsigned>(std::atoi(wanted)) : 1, count = wanted ? 1 : 60;
  for (unsigned seed = first; seed < first + count; ++seed) {
    std::printf("  seed %u\n", seed);
    std::fflush(stdout);
    std::mt19937 random(seed);
    const auto below = [&random](int limit) {
      return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    std::vector<int> parents = {0};
    const int size = 7 + below(7);
    while (static_cast<int>(parents.size()) < size) {
      const int above = below(static_cast<int>(parents.size()));
      if (std::count(parents.begin(), parents.end(), above) <= 3) parents.push_back(above);
    }
    Tree tree(parents);
    usleep(static_cast<useconds_t>(below(5000)));
    std::set<int> victims, culprits;
    // A failure elsewhere, whose reason is under way when others die.
    const int aborts = below(size);
    if (below(2) == 0) {
      culprits.insert(aborts);
      tree.abort(aborts, "rank " + std::to_string(aborts) + " has had enough");
      usleep(static_cast<useconds_t>(below(200)));
    }
    for (int deaths = 1 + below(2); deaths > 0; --deaths) {
      const int victim = below(size);
      if (!victims.insert(victim).second) continue;
      culprits.insert(victim);
      if (below(4) == 0) {
        tree.silence(victim);
      } else {
        tree.kill(victim);
      }
      usleep(static_cast<useconds_t>(below(300)));
    }
    check_all_name(&tree, victims, culprits, "rank ");
  }
}

TEST(an_orderly_end_blames_nobody_whoever_closes_first) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Tree tree(regular_tree(7, 2));
    std::vector<int> order = {0, 1, 2, 3, 4, 5, 6};
    std::shuffle(order.begin(), order.end(), random);
    tree.expect_closing();
    for (int rank : order) tree.kill(rank);
    for (int rank : order)
      if (tree.raised(rank)) CHECK(tree.told(rank).culprit() == -1);
  }
}

TEST(rank_0_hears_of_all_ranks_and_each_of_its_clock) {
  Tree tree(regular_tree(7, 1));  // a chain
  tree.wait_for(0, [](const Tree::Heard& heard) { return heard.progress.size() == 6; });
  for (int rank = 1; rank < 7; ++rank) {
    tree.wait_for(rank, [](const Tree::Heard& heard) { return heard.root.known; });
    tree.wait_for(0, [rank](const Tree::Heard& heard) {
      const hvd::wire::Progress& last = heard.progress.at(rank).back();
      CHECK(last.steps == static_cast<uint64_t>(rank) + 100);
      // All have the same clock.
      CHECK(static_cast<uint64_t>(std::abs(last.root.offset)) <= last.root.round_trip);
      return last.root.known;
    });
  }
}

TEST(questions_go_down_and_answers_up) {
  Tree tree(regular_tree(13, 3));
  for (int rank = 1; rank < 13; ++rank)
    tree.post(0, rank, hvd::wire::encode_dump(static_cast<uint32_t>(rank), "why"));
  for (int rank = 1; rank < 13; ++rank) {
    tree.wait_for(rank, [](const Tree::Heard& heard) { return !heard.messages.empty(); });
    tree.wait_for(rank, [rank](const Tree::Heard& heard) {
      const hvd::wire::Message& question = heard.messages.front().second;
      CHECK(heard.messages.size() == 1 && question.type == hvd::wire::MessageType::kDump);
      CHECK(question.id == static_cast<uint32_t>(rank) && question.text == "why");
      return true;
    });
    tree.post(rank, 0, hvd::wire::encode_stacks(static_cast<uint32_t>(rank), 1, "here"));
  }
  tree.wait_for(0, [](const Tree::Heard& heard) { return heard.messages.size() == 12; });
  tree.wait_for(0, [](const Tree::Heard& heard) {
    for (const auto& [rank, answer] : heard.messages)
      CHECK(answer.type == hvd::wire::MessageType::kStacks && answer.id == static_cast<uint32_t>(rank));
    return true;
  });
}

// Rank 0 is the test, with six ranks below its only child.
TEST(a_branch_says_one_thing_of_all_its_ranks_in_a_heartbeat) {
  Tree tree({0, 0, 1, 1, 2, 2, 3}, 0);
  int clocks = 0, tellings = 0;
  size_t most = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(100); most < 6 || clocks < 12;) {
    CHECK(Clock::now() < end);
    CHECK(tree.channel().send(hvd::wire::encode_simple(hvd::wire::MessageType::kHeartbeat)));
    usleep(10'000);
    const uint8_t* data = nullptr;
    size_t size = 0;
    while (tree.channel().receive(&data, &size) == hvd::wire::Channel::Received::kFrame) {
      hvd::wire::Message message;
      CHECK(hvd::wire::decode(data, size, &message));
      if (message.type == hvd::wire::MessageType::kClock) ++clocks;
      if (message.type != hvd::wire::MessageType::kProgress) continue;
      ++tellings;
      most = std::max(most, message.progress.size());
    }
  }
  CHECK(most == 6 && tellings <= clocks);
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
