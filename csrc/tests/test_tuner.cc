// The search for parameters, on simulated costs.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "engine/tuner.h"
#include "tests/check.h"

namespace {

using hvd::Tuner;
using Point = Tuner::Point;
using Cost = std::function<double(const Point&)>;       // of a step, in seconds
using Noise = std::function<double(double, int step)>;  // what is measured instead

const std::vector<size_t> kChoices = {4, 3, 3, 3, 3, 3, 4};  // those of a job on several hosts
const Point kStandard = {1, 1, 1, 1, 0, 1, 3};

double exact(double seconds, int) { return seconds; }

// Until it ends, which has to be in time.
Tuner run(const Cost& cost, const Noise& noise, const Point& suggested = kStandard,
          Tuner::Options options = {}) {
  Tuner tuner(kChoices, kStandard, suggested, options);
  while (!tuner.finished()) {
    const Point before = tuner.point();
    const bool changed = tuner.step(noise(cost(before), tuner.steps()));
    CHECK(changed == (tuner.point() != before));
    CHECK(tuner.steps() <= 10 + options.steps_per_turn * (192 + options.warmup_turns));
  }
  return tuner;
}

Noise gaussian(std::mt19937& random, double deviation) {
  return [&random, deviation](double seconds, int) {
    return seconds * std::max(0.1, 1.0 + std::normal_distribution<>(0, deviation)(random));
  };
}

// Costs `gain` of the standard's at one value of one parameter.
Cost well(size_t parameter, size_t value, double gain) {
  return [=](const Point& point) { return point[parameter] == value ? 0.1 * gain : 0.1; };
}

void each_value(const std::function<void(size_t parameter, size_t value)>& body) {
  for (size_t parameter = 0; parameter < kChoices.size(); ++parameter)
    for (size_t value = 0; value < kChoices[parameter]; ++value)
      if (value != kStandard[parameter]) body(parameter, value);
}

}  // namespace

TEST(any_curve_ends_in_time_and_never_above_the_standard) {
  std::mt19937 random(1);
  for (int curve = 0; curve < 3000; ++curve) {
    std::vector<std::vector<double>> factors;
    for (size_t count : kChoices) {
      factors.emplace_back();
      for (size_t i = 0; i < count; ++i)
        factors.back().push_back(std::uniform_real_distribution<>(0.8, 1.3)(random));
    }
    // Parameters may also stand in each other's way.
    const double conflict = std::uniform_real_distribution<>(0, 0.5)(random);
    const Cost cost = [&](const Point& point) {
      double seconds = 0.01;
      for (size_t i = 0; i < point.size(); ++i) seconds *= factors[i][point[i]];
      return seconds * (1 + (point[0] != kStandard[0] && point[1] != kStandard[1] ? conflict : 0));
    };
    const Tuner tuner = run(cost, exact);
    CHECK(tuner.steps() <= 400);
    CHECK(cost(tuner.point()) <= cost(kStandard));
    CHECK(std::abs(tuner.gain() - cost(tuner.point()) / cost(kStandard)) < 1e-9);
  }
}

TEST(ten_percent_are_found_wherever_they_are) {
  std::mt19937 random(2);
  int runs = 0, found = 0;
  each_value([&](size_t parameter, size_t value) {
    const Cost cost = well(parameter, value, 0.9);
    CHECK(run(cost, exact).point()[parameter] == value);
    for (int i = 0; i < 50; ++i, ++runs) {
      const Tuner tuner = run(cost, gaussian(random, 0.03));
      CHECK(tuner.steps() <= 400);
      found += tuner.point()[parameter] == value;
    }
  });
  std::printf("found in %d of %d\n", found, runs);
  CHECK(found >= runs * 95 / 100);
}

TEST(gains_of_two_parameters_add_up) {
  const Cost cost = [](const Point& point) {
    return 0.1 * (point[0] == 3 ? 0.95 : 1.0) * (point[6] == 1 ? 0.9 : 1.0);
  };
  const Tuner tuner = run(cost, exact);
  CHECK(tuner.point()[0] == 3 && tuner.point()[6] == 1);
}

TEST(one_that_only_helps_after_another_is_found_in_the_second_round) {
  const Cost cost = [](const Point& point) {
    if (point[6] != 2) return 0.1;
    return point[0] == 2 ? 0.08 : 0.09;
  };
  CHECK(run(cost, exact).point()[0] == 2);
}

TEST(noise_is_not_taken_for_a_gain) {
  struct Kind {
    const char* name;
    std::function<Noise(std::mt19937&)> make;
  };
  const Kind kinds[] = {
      {"narrow", [](std::mt19937& random) { return gaussian(random, 0.01); }},
      {"usual", [](std::mt19937& random) { return gaussian(random, 0.05); }},
      {"wide", [](std::mt19937& random) { return gaussian(random, 0.3); }},
      {"some steps take ten times as long",
       [](std::mt19937& random) -> Noise {
         return [&random](double seconds, int) {
           return seconds * (random() % 20 == 0 ? 10 : 1 + 1e-3 * (random() % 10));
         };
       }},
      {"becomes faster",
       [](std::mt19937& random) -> Noise {
         return [noise = gaussian(random, 0.02)](double seconds, int step) {
           return noise(seconds, step) * std::pow(0.99, step);
         };
       }},
      {"every tenth step saves",
       [](std::mt19937& random) -> Noise {
         return [noise = gaussian(random, 0.02)](double seconds, int step) {
           return noise(seconds, step) * (step % 10 == 0 ? 3 : 1);
         };
       }},
      {"fast and slow steps in turn",
       [](std::mt19937& random) -> Noise {
         return [noise = gaussian(random, 0.02)](double seconds, int step) {
           return noise(seconds, step) * (step % 2 == 0 ? 3 : 1);
         };
       }},
  };
  for (const Kind& kind : kinds) {
    std::mt19937 random(3);
    int kept = 0, steps = 0;
    for (int i = 0; i < 1000; ++i) {
      const Tuner tuner = run([](const Point&) { return 0.1; }, kind.make(random));
      kept += tuner.point() == kStandard;
      steps += tuner.steps();
      CHECK(tuner.steps() <= 400);
    }
    std::printf("%s: kept in %d of 1000, after %d steps\n", kind.name, kept, steps / 1000);
    CHECK(kept >= 950);
  }
}

TEST(worse_ones_are_not_adopted_despite_noise) {
  std::mt19937 random(4);
  int slower = 0;
  for (int i = 0; i < 1000; ++i) {
    const Cost cost = [](const Point& point) {
      return 0.1 * (1 + 0.02 * std::inner_product(point.begin(), point.end(), kStandard.begin(), 0.0,
                                                  std::plus<>(), [](size_t a, size_t b) { return a != b; }));
    };
    slower += run(cost, gaussian(random, 0.1)).point() != kStandard;
  }
  std::printf("slower in %d of 1000\n", slower);
  CHECK(slower <= 10);
}

TEST(a_bad_candidate_costs_four_steps) {
  // All but the standard take ten times as long.
  int slow = 0;
  const Tuner tuner = run([](const Point& point) { return point == kStandard ? 0.1 : 1.0; },
                          [&](double seconds, int) {
                            slow += seconds > 0.5;
                            return seconds;
                          });
  CHECK(tuner.point() == kStandard && tuner.gain() == 1.0);
  CHECK(slow == 4 * static_cast<int>(tuner.samples().size()));
  for (const Tuner::Sample& sample : tuner.samples())
    CHECK(!sample.adopted && sample.pairs == 2 && sample.won == 0 && std::abs(sample.ratio - 10) < 1e-9);
}

TEST(a_profile_that_holds_ends_the_search) {
  Point suggested = kStandard;
  suggested[2] = 2;
  const Tuner tuner = run(well(2, 2, 0.9), exact, suggested);
  CHECK(tuner.point() == suggested && tuner.steps() == 16 + 28 && tuner.samples().size() == 1);
  CHECK(tuner.samples()[0].stage == Tuner::Stage::kProfile && tuner.samples()[0].adopted);
}

TEST(a_profile_that_does_not_is_searched_again) {
  Point suggested = kStandard;
  suggested[2] = 0;
  const Tuner tuner = run(well(2, 2, 0.9), exact, suggested);
  CHECK(tuner.point()[2] == 2 && !tuner.samples()[0].adopted);
  CHECK(tuner.samples().back().stage == Tuner::Stage::kConfirm);
}

TEST(options_say_how_long_it_takes) {
  const Cost cost = well(0, 2, 0.8);
  for (int steps : {1, 2, 10})
    for (int warmup : {0, 3, 300}) {
      const auto faster = [](double seconds, int) { return seconds / 20; };  // or time is up before
      const Tuner tuner = run(cost, faster, kStandard, {steps, warmup, 20});
      CHECK(tuner.point()[0] == 2);
    }
  const Tuner none = run(cost, exact, kStandard, {2, 3, 0});
  CHECK(none.samples().empty() && none.point() == kStandard && none.steps() == 16);
  const Tuner one = run(cost, exact, kStandard, {2, 3, 1});
  CHECK(one.samples().size() == 2 && one.point()[0] == 2);  // and its confirmation
}

TEST(a_minute_is_enough) {
  for (double seconds : {0.2, 0.4, 0.8, 1.0, 1.9, 2.0, 30.0, 100.0}) {
    double spent = 0;
    const Cost cost = [&](const Point& point) { return seconds * (point[0] == 2 ? 0.8 : 1.0); };
    const Tuner tuner = run(cost, [&](double each, int step) {
      spent += step >= 16 ? each : 0;
      return each;
    });
    CHECK(spent <= 60 + seconds);
    // What was found is kept only if there was time to confirm it.
    const bool confirmed = !tuner.samples().empty() &&
                           tuner.samples().back().stage == Tuner::Stage::kConfirm &&
                           tuner.samples().back().adopted;
    CHECK(tuner.point()[0] == (confirmed ? 2 : kStandard[0]));
    CHECK(tuner.gain() == 1.0 || confirmed);
    CHECK(confirmed == (seconds < 1.5));
  }
}

TEST(a_gain_that_could_not_be_confirmed_in_time_is_not_kept) {
  // Steps become long when the first candidate has been adopted.
  const Cost cost = well(0, 2, 0.8);
  const Tuner tuner =
      run(cost, [](double seconds, int step) { return step < 16 + 32 ? seconds : 20 * seconds; });
  CHECK(!tuner.samples().empty() && tuner.samples().front().adopted);
  CHECK(tuner.point() == kStandard && tuner.gain() == 1.0);
}

TEST(nothing_to_tune_and_odd_times) {
  Tuner none({}, {}, {}, {});
  for (int i = 0; i < 16; ++i) none.step(0.1);
  CHECK(none.finished() && none.point().empty());
  for (double seconds : {0.0, -1.0, std::nan(""), HUGE_VAL})
    CHECK(run([=](const Point&) { return seconds; }, exact).point() == kStandard);
}

int main(int argc, char** argv) {
  alarm(120);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
