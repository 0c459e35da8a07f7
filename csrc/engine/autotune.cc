#include "engine/autotune.h"

#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "engine/negotiation.h"

namespace hvd {
namespace {

const char* stage_name(Tuner::Stage stage) {
  switch (stage) {
    case Tuner::Stage::kProfile:
      return "profile";
    case Tuner::Stage::kConfirm:
      return "confirm";
    default:
      return "search";
  }
}

std::vector<size_t> tuned_of(const Autotune::Options& options) {
  std::vector<size_t> tuned;
  for (size_t i = 0; i < kTunableCount; ++i) {
    const bool kept = options.keep_fusion && kTunables[i].value == &Tuning::fusion_threshold;
    if ((kTunables[i].part & (options.parts | kTunesRelease)) != 0 && !kept) tuned.push_back(i);
  }
  return tuned;
}

std::vector<size_t> counts(const std::vector<size_t>& tuned) {
  std::vector<size_t> result;
  for (size_t i : tuned) result.push_back(kTunables[i].count());
  return result;
}

Tuner::Point standard_of(const std::vector<size_t>& tuned) {
  const Choices standard = standard_choices();
  Tuner::Point result;
  for (size_t i : tuned) result.push_back(standard[i]);
  return result;
}

// What is not among the choices any more is left as it is.
Tuner::Point suggestion_of(const std::vector<size_t>& tuned, const std::vector<int64_t>& suggested) {
  Tuner::Point result = standard_of(tuned);
  for (size_t p = 0; p < tuned.size() && suggested.size() == kTunableCount; ++p) {
    const auto& choices = kTunables[tuned[p]].choices;
    const auto found = std::find(choices.begin(), choices.end(), suggested[tuned[p]]);
    if (suggested[tuned[p]] > 0 && found != choices.end())
      result[p] = static_cast<size_t>(found - choices.begin());
  }
  return result;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

bool may_be_anchor(const wire::Request& request) {
  return !request.tensors.empty() && request.kind != HVD_BROADCAST;
}

}  // namespace

Choices standard_choices() {
  Choices result{};
  for (size_t i = 0; i < kTunableCount; ++i) {
    const auto& choices = kTunables[i].choices;
    const int64_t standard = Tuning().*kTunables[i].value;
    result[i] = static_cast<uint8_t>(std::find(choices.begin(), choices.end(), standard) - choices.begin());
  }
  return result;
}

bool take_choices(const std::vector<uint8_t>& choices, Tuning* tuning) {
  if (choices.size() != kTunableCount) return false;
  for (size_t i = 0; i < kTunableCount; ++i)
    if (choices[i] >= kTunables[i].count()) return false;
  for (size_t i = 0; i < kTunableCount; ++i) tuning->*kTunables[i].value = kTunables[i].choices[choices[i]];
  return true;
}

Autotune::Autotune(const Options& options, Report report)
    : options_(options),
      report_(std::move(report)),
      tuned_(tuned_of(options)),
      tuner_(counts(tuned_), standard_of(tuned_), suggestion_of(tuned_, options.suggested), options.tuner),
      choices_(standard_choices()) {}

bool Autotune::released(const std::vector<const wire::Request*>& items, int64_t bytes, uint64_t now_ns) {
  if (finished_) return false;
  bytes_ += bytes;
  if (options_.shuffle) {
    for (size_t i : tuned_) choices_[i] = static_cast<uint8_t>(random_() % kTunables[i].count());
    return true;
  }
  bool counts = false;
  for (const wire::Request* item : items) {
    if (!may_be_anchor(*item)) continue;
    counts = true;
    if (by_marks_) return false;
    if (anchor_.empty() ? find_anchor(*item) : operation_key(item->process_set, item->name) == anchor_)
      return step(now_ns);
  }
  if (counts && anchor_.empty() && !by_marks_ && ++unknown_ == kOperations && marks_ == 0) tell_unknown();
  return false;
}

// One that comes for the third time, unless the application tells its steps.
bool Autotune::find_anchor(const wire::Request& request) {
  std::string key = operation_key(request.process_set, request.name);
  const int times = ++seen_[key];
  if (times > 1) unknown_ = 0;
  if (times < 3) {
    if (seen_.size() > kNames) {
      tell_unknown();
      finished_ = true;
    }
    return false;
  }
  seen_.clear();
  by_marks_ = marks_ > 0;
  if (!by_marks_) anchor_ = std::move(key);
  return !by_marks_;
}

bool Autotune::marked(uint64_t now_ns) {
  if (finished_ || options_.shuffle) return false;
  ++marks_;
  if (!by_marks_ && marks_ >= 3 && tuner_.stage() == Tuner::Stage::kWarmUp) {  // whatever the names
    by_marks_ = true;
    anchor_.clear();
    last_ns_ = 0;
  }
  return by_marks_ && step(now_ns);
}

bool Autotune::step(uint64_t now_ns) {
  const uint64_t before = std::exchange(last_ns_, now_ns);
  if (before == 0) {
    bytes_ = steps_ = 0;
    return false;
  }
  const bool changed = tuner_.step(static_cast<double>(now_ns - before) * 1e-9);
  bytes_per_step_ = static_cast<double>(bytes_) / static_cast<double>(++steps_);
  if (changed) choices_ = at(tuner_.point());
  while (told_ < tuner_.samples().size()) tell(tuner_.samples()[told_++]);
  if (tuner_.finished()) {
    finished_ = true;
    tell_end();
  }
  return changed;
}

Choices Autotune::at(const Tuner::Point& point) const {
  Choices choices = standard_choices();
  for (size_t p = 0; p < tuned_.size(); ++p) choices[tuned_[p]] = static_cast<uint8_t>(point[p]);
  return choices;
}

std::string Autotune::values(const Choices& choices, bool changed_only) const {
  const Choices standard = standard_choices();
  std::string text = "{";
  for (size_t i : tuned_) {
    if (changed_only && choices[i] == standard[i]) continue;
    text += (text.size() == 1 ? "" : ", ") + json_text(kTunables[i].name) + ": " +
            std::to_string(kTunables[i].choices[choices[i]]);
  }
  return text + "}";
}

void Autotune::tell(const Tuner::Sample& sample) {
  const double score = sample.seconds > 0 ? bytes_per_step_ / (sample.seconds * 1e6) : 0;
  report_(R"({"state": "sample", "stage": ")" + std::string(stage_name(sample.stage)) + R"(", "values": )" +
          values(at(sample.point)) + R"(, "step_seconds": )" + number(sample.seconds) + R"(, "ratio": )" +
          number(sample.ratio) + R"(, "pairs": )" + std::to_string(sample.pairs) + R"(, "won": )" +
          std::to_string(sample.won) + R"(, "adopted": )" + (sample.adopted ? "true" : "false") +
          R"(, "steps": )" + std::to_string(tuner_.steps()) + R"(, "score": )" + number(score) + "}");
}

void Autotune::tell_end() {
  report_(R"({"state": "finished", "values": )" + values(choices_) + R"(, "changed": )" +
          values(choices_, true) + R"(, "ratio": )" + number(tuner_.gain()) + R"(, "steps": )" +
          std::to_string(tuner_.steps()) + "}");
}

void Autotune::tell_unknown() {
  if (std::exchange(told_up_, true)) return;
  const std::string reason = "no operation of the last " + std::to_string(kOperations) +
                             " came back under the same name, so steps can't be told apart";
  report_(R"({"state": "given_up", "reason": )" + json_text(reason) + "}");
}

}  // namespace hvd
