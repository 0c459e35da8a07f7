#include "engine/inspector.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/thread.h"

namespace hvd {
namespace {

// Together less than 2 s, within which a stall is reported.
constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr auto kStackPatience = std::chrono::milliseconds(1200);  // a rank tries three ways within 1 s

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

}  // namespace

Inspector::Inspector(const hvd_knobs& knobs, std::vector<PeerName> peers, Sources sources, const Log& log,
                     Metrics* metrics, Notices* notices, AbortSignal* abort, std::chrono::seconds minute)
    : knobs_(knobs),
      peers_(std::move(peers)),
      sources_(std::move(sources)),
      log_(log),
      metrics_(metrics),
      notices_(notices),
      abort_(abort),
      minute_(minute),
      stalls_(knobs.stall_check_disable ? 0.0 : knobs.stall_check_time_seconds, peers_),
      next_minute_(Clock::now() + minute),
      late_before_(peers_.size()),
      told_slow_(peers_.size(), 0),
      board_(peers_.size()) {}

void Inspector::start() {
  thread_ = start_thread("hvd-inspector", [this] { run(); });
}

void Inspector::stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Inspector::progress(int rank, const wire::Progress& progress) {
  std::lock_guard<std::mutex> lock(mutex_);
  Summary& summary = board_[static_cast<size_t>(rank)];
  summary.progress = progress;
  summary.heard = Clock::now();
}

std::vector<Summary> Inspector::summaries() {
  progress(0, sources_.own_progress());
  const std::vector<Negotiation::Late> late = sources_.late();
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t rank = 0; rank < board_.size(); ++rank) board_[rank].late = late[rank];
  return board_;
}

std::vector<RankState> Inspector::states() {
  std::vector<RankState> states;
  const Clock::time_point now = Clock::now();
  for (const Summary& summary : summaries()) {
    RankState state;
    state.known = summary.heard != Clock::time_point{};
    if (state.known) {
      const double age = std::chrono::duration<double>(now - summary.heard).count();
      state.name = summary.progress.name;
      if (summary.progress.running_ns > 0)
        state.running = static_cast<double>(summary.progress.running_ns) / 1e9 + age;
      state.idle = static_cast<double>(summary.progress.idle_ns) / 1e9 + age;
    }
    states.push_back(std::move(state));
  }
  return states;
}

// ---- the thread

void Inspector::run() {
  Clock::time_point next = Clock::now() + kInterval;
  while (!abort_->raised()) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      Clock::time_point until = next;
      for (const Pending& each : pending_) until = std::min(until, each.deadline);
      if (!stopped_) changed_.wait_until(lock, until);
      if (stopped_) return;
    }
    tell_finished_reports();
    if (Clock::now() < next) continue;
    next = Clock::now() + kInterval;
    progress(0, sources_.own_progress());  // for the rates, also if nothing is looked for
    look();
    look_back();
  }
}

void Inspector::look() {
  const double warn = knobs_.stall_check_disable ? 0.0 : knobs_.stall_check_time_seconds;
  const double stop = knobs_.stall_check_disable ? 0.0 : knobs_.stall_shutdown_time_seconds;
  if (stopping_job_ || (warn <= 0 && stop <= 0)) return;
  const double limit = warn <= 0 ? stop : stop <= 0 ? warn : std::min(warn, stop);
  const std::vector<Negotiation::Stalled> votes = sources_.waiting(limit);
  if (sources_.closing()) return;
  std::vector<Pending> pending;
  for (Stalls::Report& report : stalls_.update(votes, states())) {
    if (report.kind != Stalls::Report::Kind::kResolved) metrics_->stalls.add();
    pending.push_back({std::move(report), 0, {}, {}, ""});
  }
  metrics_->stalled.set(stalls_.stalled());
  {
    const std::set<int> waited_for = stalls_.waited_for();
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t rank = 0; rank < board_.size(); ++rank)
      board_[rank].waited_for = waited_for.count(static_cast<int>(rank)) > 0;
  }
  if (stop > 0 && !votes.empty() && votes.front().seconds >= stop) {
    stopping_job_ = true;
    Stalls::Report last;
    last.text = "The job ends because of this; where the ranks are:";
    for (size_t rank = 0; rank < peers_.size(); ++rank) last.ask.push_back(static_cast<int>(rank));
    const std::vector<int>& missing = votes.front().missing;
    pending.push_back({std::move(last),
                       0,
                       {},
                       {},
                       Stalls::reason_to_stop(votes.front(), stop),
                       missing.empty() ? -1 : missing.front()});
  }
  for (Pending& each : pending) {
    if (!knobs_.stall_stacks) each.report.ask.clear();
    each.deadline = Clock::now() + kStackPatience;
    std::vector<int> asked = each.report.ask;
    uint32_t asked_number = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      each.number = asked_number = ++last_number_;
      pending_.push_back(std::move(each));
    }
    for (int rank : asked) sources_.ask(rank, asked_number, "stall");
  }
  tell_finished_reports();
}

void Inspector::tell_finished_reports() {
  std::vector<Pending> finished;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto each = pending_.begin(); each != pending_.end();) {
      if (each->stacks.size() < each->report.ask.size() && Clock::now() < each->deadline) {
        ++each;
        continue;
      }
      finished.push_back(std::move(*each));
      each = pending_.erase(each);
    }
  }
  for (const Pending& each : finished) {
    tell(each);
    if (!each.stop_reason.empty()) abort_->raise(Status::unknown(each.stop_reason).blame(each.culprit));
  }
}

void Inspector::tell(const Pending& pending) {
  const Stalls::Report& report = pending.report;
  const std::string text = report.text + stack_lines(pending.stacks);
  log_.warning(text);
  if (!pending.stop_reason.empty()) return;
  constexpr const char* names[] = {"stall", "hang", "stall_resolved"};
  constexpr size_t kNames = 6;
  std::string tensors, missing;
  for (size_t i = 0; i < report.names.size() && i < kNames; ++i)
    tensors += (i ? ", " : "") + json_text(report.names[i]);
  for (int rank : report.missing) {
    const PeerName& peer = peers_[static_cast<size_t>(rank)];
    missing += (missing.empty() ? R"({"rank": )" : R"(, {"rank": )") + std::to_string(rank) +
               R"(, "host": )" + json_text(peer.host) + R"(, "pid": )" + std::to_string(peer.pid) + "}";
  }
  notices_->push({HVD_EVENT_REPORT, 0, pending.number, 0,
                  std::string(R"({"event": ")") + names[static_cast<int>(report.kind)] +
                      R"(", "tensors": [)" + tensors + R"(], "more": )" +
                      std::to_string(report.names.size() - std::min(report.names.size(), kNames)) +
                      R"(, "seconds": )" + number(report.seconds) + R"(, "missing": [)" + missing +
                      R"(], "ready": )" + list(report.ready) + R"(, "text": )" + json_text(text) + "}"});
}

// Ranks that say the same are told of together.
std::string Inspector::stack_lines(const std::map<int, Stack>& stacks) const {
  std::map<std::string, std::vector<int>> by_text;
  for (const auto& each : stacks) by_text[each.second.text].push_back(each.first);
  std::string lines;
  for (const auto& [text, ranks] : by_text) {
    constexpr size_t kLines = 12;
    size_t count = 0, at = 0;
    while (at < text.size() && count < kLines) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines += "\nRank " + rank_ranges(ranks) + " " + text.substr(at, end - at);
      at = end + 1;
      ++count;
    }
    if (at < text.size()) lines += "\nRank " + rank_ranges(ranks) + " ...";
  }
  return lines;
}

SlowRank find_slow_rank(const std::vector<Negotiation::Late>& before,
                        const std::vector<Negotiation::Late>& now, double period) {
  constexpr uint64_t kEnough = 50;
  constexpr double kShare = 0.8, kCost = 0.1;
  uint64_t all = 0;
  for (size_t rank = 0; rank < now.size(); ++rank) all += now[rank].times - before[rank].times;
  if (all < kEnough) return {};
  for (size_t rank = 0; rank < now.size(); ++rank) {
    const auto times = static_cast<double>(now[rank].times - before[rank].times);
    const double seconds = std::chrono::duration<double>(now[rank].cost - before[rank].cost).count();
    const double share = times / static_cast<double>(all);
    if (share > kShare && seconds > kCost * period) return {static_cast<int>(rank), share, seconds};
  }
  return {};
}

void Inspector::look_back() {
  const Clock::time_point now = Clock::now();
  if (now < next_minute_) return;
  next_minute_ = now + minute_;
  check_slow_rank();
  check_evictions();
}

// More than it holds: names that never recur, or more of them than there is room for.
void Inspector::check_evictions() {
  const uint64_t all = metrics_->cache_evictions.value();
  const uint64_t evicted = all - std::exchange(evicted_before_, all);
  if (told_evictions_ || evicted <= static_cast<uint64_t>(std::max(knobs_.cache_capacity, 0))) return;
  told_evictions_ = true;
  log_.info(std::to_string(evicted) +
            " tensors were evicted from the cache in the last minute, so they cost more: give tensors names "
            "that recur, or the cache more room (HOROVOD_CACHE_CAPACITY=" +
            std::to_string(knobs_.cache_capacity) + ").");
}

// Without a trace: who is the last one nearly always, and makes the others wait for a good part of the time?
void Inspector::check_slow_rank() {
  std::vector<Negotiation::Late> late = sources_.late();
  const SlowRank slow = find_slow_rank(late_before_, late, std::chrono::duration<double>(minute_).count());
  late_before_ = std::move(late);
  if (slow.rank < 0 || told_slow_[static_cast<size_t>(slow.rank)]) return;
  told_slow_[static_cast<size_t>(slow.rank)] = 1;
  log_.warning(stalls_.name_of(slow.rank) + " was the last to be ready in " +
               std::to_string(static_cast<int>(slow.share * 100)) +
               " % of the operations of the last minute; the others waited " + number(slow.seconds) +
               " s for it.");
  notices_->push({HVD_EVENT_REPORT, 0, 0, 0,
                  R"({"event": "slow_rank", "rank": )" + std::to_string(slow.rank) + R"(, "host": )" +
                      json_text(peers_[static_cast<size_t>(slow.rank)].host) + R"(, "share": )" +
                      number(slow.share) + R"(, "seconds_lost": )" + number(slow.seconds) + "}"});
}

// ---- stacks

void Inspector::stacks(int rank, uint32_t number, int how, const std::string& text) {
  bool requested = false;  // otherwise it is for a report
  {
    std::lock_guard<std::mutex> lock(mutex_);
    requested = requested_.count(number) > 0;
    for (Pending& each : pending_)
      if (each.number == number) each.stacks[rank] = {how, text};
  }
  changed_.notify_all();
  if (requested) notices_->push({HVD_EVENT_STACKS, rank, number, how, text});
}

uint32_t Inspector::ask_stacks(int rank, const std::string& reason) {
  std::vector<int> ranks;
  for (size_t each = 0; each < peers_.size(); ++each)
    if (rank < 0 || static_cast<size_t>(rank) == each) ranks.push_back(static_cast<int>(each));
  if (ranks.empty()) return 0;
  uint32_t asked = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    asked = ++last_number_;
    requested_.insert(asked);
  }
  for (int each : ranks) sources_.ask(each, asked, reason);
  return asked;
}

}  // namespace hvd
