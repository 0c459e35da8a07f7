// Reads the events of a Chrome trace as Timeline writes them, and checks that its bars nest.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "check.h"

struct TraceEvent {
  char phase = 0;
  int row = 0, track = -1;
  long time = 0;
  std::string name, text;
};

inline std::string value_of(const std::string& event, const std::string& key) {
  const std::string begin = "\"" + key + "\": ";
  const size_t at = event.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  if (event[from] == '"') return event.substr(from + 1, event.find('"', from + 1) - from - 1);
  return event.substr(from, event.find_first_of(",}", from) - from);
}

inline TraceEvent trace_event(const std::string& text) {
  TraceEvent event;
  event.phase = value_of(text, "ph").at(0);
  event.row = std::atoi(value_of(text, "pid").c_str());
  if (!value_of(text, "tid").empty()) event.track = std::atoi(value_of(text, "tid").c_str());
  event.time = std::atol(value_of(text, "ts").c_str());
  event.name = value_of(text, "name");
  event.text = text;
  return event;
}

// A viewer draws what is on one track: each bar must end before the one that it began in, and no track may
// belong to two rows, or be number 0, which viewers have taken for 1.
inline void check_nesting(const std::vector<TraceEvent>& events, bool all_end) {
  std::map<int, std::vector<const TraceEvent*>> open;
  std::map<int, int> row_of;
  std::map<int, long> last;
  for (const TraceEvent& event : events) {
    if (event.phase == 'M') continue;
    CHECK(event.track > 0);
    CHECK(row_of.try_emplace(event.track, event.row).first->second == event.row);
    CHECK(event.time >= last[event.track]);
    last[event.track] = event.time;
    auto& bars = open[event.track];
    if (event.phase == 'B') {
      const bool negotiation = event.name.rfind("NEGOTIATE_", 0) == 0;
      for (const TraceEvent* outer : bars) CHECK(!negotiation && outer->name != event.name);
      bars.push_back(&event);
    } else if (event.phase == 'E') {
      CHECK(!bars.empty());
      bars.pop_back();
    } else if (event.phase == 'X') {
      CHECK(!bars.empty() && bars.back()->name.rfind("NEGOTIATE_", 0) == 0);
    }
  }
  for (const auto& track : open) CHECK(!all_end || track.second.empty());
}
