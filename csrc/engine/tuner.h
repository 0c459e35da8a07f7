// Searches for parameters that make steps shorter: times come in, the parameters of the next step come out.
// No clock, no I/O.
//
// A candidate differs from the best so far in one parameter. Both run in turns of a few steps, in an order
// in which what becomes slower or faster with time touches both (best, candidate, candidate, best ...), and
// are compared in pairs. The candidate is adopted when it has won 7 of at most 8 pairs, by 3 % in the middle,
// and dropped when it has lost two. In the end the best has to win against the standard once more, in fresh
// pairs: otherwise the standard stays. It also stays if time is up before: 400 steps, or 60 s after the
// warm-up.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace hvd {

class Tuner {
 public:
  using Point = std::vector<size_t>;  // which of its values each parameter has

  struct Options {
    int steps_per_turn = 2;
    int warmup_turns = 3;  // after the first steps, which don't count either
    int candidates = 20;   // at most
  };

  enum class Stage { kWarmUp, kProfile, kSearch, kConfirm, kFinished };

  // A comparison that has ended.
  struct Sample {
    Stage stage;
    Point point;
    double seconds;  // of a step, in the middle
    double ratio;    // to what it was compared with
    size_t pairs, won;
    bool adopted;
  };

  // `choices`: how many values each parameter has. `suggested` is tried first, and nothing else if it proves
  // better; the same as `standard` if there is none.
  Tuner(std::vector<size_t> choices, Point standard, Point suggested, Options options);

  // A step with point() took this long. True if the next ones have another point().
  bool step(double seconds);
  const Point& point() const { return now_; }

  Stage stage() const { return stage_; }
  bool finished() const { return stage_ == Stage::kFinished; }
  int steps() const { return steps_; }
  // What it ends with is better than the standard by this: 0.9 is 10 % less time. 1 for the standard.
  double gain() const { return gain_; }
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  int warmup() const;
  bool time_for(int turns) const;
  void compare(Stage stage, Point candidate);
  void end_turn();
  void end_comparison(bool adopted);
  void next_candidate();
  bool find_candidate(Point* candidate);
  void fill_queue();
  void finish(Point point, double gain);

  const std::vector<size_t> choices_;
  const Point standard_;
  const Point suggested_;
  const Options options_;
  Stage stage_ = Stage::kWarmUp;
  Point now_, best_, candidate_;
  int steps_ = 0;
  double spent_ = 0;  // seconds since the warm-up
  double gain_ = 1.0;
  std::vector<Sample> samples_;

  // The present turn and comparison.
  int turn_steps_ = 0;
  double turn_seconds_ = 0, first_seconds_ = 0;
  bool second_turn_ = false;
  std::vector<double> ratios_, seconds_;
  size_t won_ = 0;

  // The search.
  int tried_ = 0;
  size_t parameter_ = 0;       // whose values are tried, or would be next
  std::vector<size_t> queue_;  // of its values
  bool gained_ = false;        // in this round
  std::set<Point> known_;      // need not be tried again
};

}  // namespace hvd
