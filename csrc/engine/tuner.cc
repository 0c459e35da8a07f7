#include "engine/tuner.h"

#include <algorithm>
#include <utility>

namespace hvd {
namespace {

constexpr int kFirstSteps = 10;  // memory is touched, caches fill, names are learnt
constexpr size_t kPairs = 8;
constexpr size_t kLosses = 2;
constexpr double kWorthIt = 0.97;
// From the end of the warm-up on; with it these are 400 steps, unless the options say otherwise.
constexpr int kTurns = 192;
constexpr double kSeconds = 60;  // no more, however long steps are

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

Tuner::Tuner(std::vector<size_t> choices, Point standard, Point suggested, Options options)
    : choices_(std::move(choices)),
      standard_(std::move(standard)),
      suggested_(std::move(suggested)),
      options_(options),
      now_(standard_),
      best_(standard_),
      parameter_(0) {
  known_.insert(standard_);
  fill_queue();
}

bool Tuner::step(double seconds) {
  if (finished()) return false;
  ++steps_;
  const Point before = now_;
  if (stage_ == Stage::kWarmUp) {
    if (steps_ < warmup()) return false;
    if (suggested_ == standard_) {
      next_candidate();
    } else {
      compare(Stage::kProfile, suggested_);
    }
    return now_ != before;
  }
  spent_ += seconds;
  if (spent_ > kSeconds) {
    finish(standard_, 1.0);
    return now_ != before;
  }
  turn_seconds_ += seconds;
  if (++turn_steps_ < options_.steps_per_turn) return false;
  end_turn();
  return now_ != before;
}

void Tuner::compare(Stage stage, Point candidate) {
  stage_ = stage;
  candidate_ = std::move(candidate);
  ratios_.clear();
  seconds_.clear();
  won_ = 0;
  second_turn_ = false;
  turn_steps_ = 0;
  turn_seconds_ = 0;
  now_ = best_;
}

void Tuner::end_turn() {
  const double seconds = turn_seconds_;
  turn_steps_ = 0;
  turn_seconds_ = 0;
  if (!second_turn_) {
    first_seconds_ = seconds;
    second_turn_ = true;
    now_ = now_ == best_ ? candidate_ : best_;
    return;
  }
  second_turn_ = false;
  const bool ours = now_ == candidate_;  // the next pair begins with what this one ended with
  const double of_candidate = ours ? seconds : first_seconds_;
  const double of_best = ours ? first_seconds_ : seconds;
  ratios_.push_back(of_best > 0 ? of_candidate / of_best : 1.0);
  seconds_.push_back(of_candidate / options_.steps_per_turn);
  if (ratios_.back() < 1.0) ++won_;
  if (ratios_.size() - won_ >= kLosses) return end_comparison(false);
  if (won_ >= kPairs - kLosses + 1) end_comparison(median(ratios_) <= kWorthIt);
}

void Tuner::end_comparison(bool adopted) {
  samples_.push_back({stage_, candidate_, median(seconds_), median(ratios_), ratios_.size(), won_, adopted});
  if (stage_ != Stage::kSearch && adopted) return finish(candidate_, samples_.back().ratio);
  if (stage_ == Stage::kConfirm) return finish(standard_, 1.0);
  if (adopted) {
    best_ = candidate_;
    gained_ = true;
  }
  next_candidate();
}

int Tuner::warmup() const { return kFirstSteps + options_.warmup_turns * options_.steps_per_turn; }

bool Tuner::time_for(int turns) const {
  const int done = steps_ - warmup();
  if (kTurns - done / options_.steps_per_turn < turns) return false;
  return done == 0 || kSeconds - spent_ >= turns * options_.steps_per_turn * spent_ / done;
}

void Tuner::next_candidate() {
  // A comparison takes two turns a pair, and the last one must find the time, too.
  constexpr int kEach = 2 * static_cast<int>(kPairs);
  Point candidate;
  if (tried_ < options_.candidates && time_for(2 * kEach) && find_candidate(&candidate)) {
    ++tried_;
    return compare(Stage::kSearch, std::move(candidate));
  }
  if (best_ == standard_) return finish(standard_, 1.0);
  Point found = std::exchange(best_, standard_);
  compare(Stage::kConfirm, std::move(found));
}

bool Tuner::find_candidate(Point* candidate) {
  for (;;) {
    while (!queue_.empty()) {
      *candidate = best_;
      (*candidate)[parameter_] = queue_.front();
      queue_.erase(queue_.begin());
      if (known_.insert(*candidate).second) return true;
    }
    if (++parameter_ >= choices_.size()) {
      if (!std::exchange(gained_, false)) return false;  // a whole round without
      parameter_ = 0;
    }
    fill_queue();
  }
}

// All its values but the present one, the nearest first: a plateau may lie before the gain.
void Tuner::fill_queue() {
  if (parameter_ >= choices_.size()) return;
  const size_t present = best_[parameter_];
  for (size_t distance = 1; distance < choices_[parameter_]; ++distance) {
    if (present + distance < choices_[parameter_]) queue_.push_back(present + distance);
    if (distance <= present) queue_.push_back(present - distance);
  }
}

void Tuner::finish(Point point, double gain) {
  stage_ = Stage::kFinished;
  now_ = best_ = std::move(point);
  gain_ = gain;
}

}  // namespace hvd
