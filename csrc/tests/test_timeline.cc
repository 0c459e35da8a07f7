// Records become events that a viewer draws as they were, and a file that is whole at any time.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "check.h"
#include "engine/json_array_file.h"
#include "engine/timeline.h"
#include "hvd.h"
#include "trace_events.h"

using hvd::JsonArrayFile;
using hvd::Record;
using hvd::RecordedName;
using hvd::RecordKind;
using hvd::Timeline;

namespace {

struct View {
  explicit View(bool mark_cycles = false)
      : timeline(5'000'000, 1234567, mark_cycles, "GLOO",
                 [this](const std::string& event) { events.push_back(trace_event(event)); }) {
    RecordedName name;
    name.number = 1;
    name.kind = HVD_ALLREDUCE;
    name.type = HVD_FLOAT32;
    name.tensors = 1;
    name.shape = {2, 3};
    name.text = "grad";
    RecordedName barrier;
    barrier.number = 2;
    barrier.kind = HVD_BARRIER;
    barrier.text = "barrier";
    RecordedName other = name;
    other.number = 3;
    other.type = HVD_FLOAT64;
    other.shape = {7};
    timeline.names({name, barrier, other});
  }
  void add(RecordKind kind, uint64_t microseconds, uint64_t argument = 0, uint32_t name = 1) {
    Record record;
    record.time = 5'000'000 + microseconds * 1000;
    record.kind = kind;
    record.name = name;
    record.argument = argument;
    timeline.record(record);
  }
  void agree(uint64_t ready, uint64_t release, uint64_t rank, uint32_t name = 1) {
    add(RecordKind::kReady, ready, rank, name);
    add(RecordKind::kRelease, release, 0, name);
  }
  void begin(uint64_t microseconds, uint32_t name = 1) {
    add(RecordKind::kRunBegin, microseconds, 0, name);
    add(RecordKind::kTensor, microseconds, 0, name);
  }
  void run(uint64_t from, uint64_t to, uint32_t name = 1) {
    begin(from, name);
    add(RecordKind::kRunEnd, to, 0, name);
  }
  int count(const std::string& name) const {
    int found = 0;
    for (const TraceEvent& event : events) found += event.name == name;
    return found;
  }
  std::vector<TraceEvent> events;
  Timeline timeline;
};

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct TemporaryFile {
  TemporaryFile() { close(mkstemp(path)); }
  ~TemporaryFile() { unlink(path); }
  char path[32] = "/tmp/hvd-test-XXXXXX";
};

}  // namespace

TEST(an_operation_has_its_negotiation_ticks_and_run) {
  View view;
  view.add(RecordKind::kReady, 10, 1);
  view.agree(20, 21, 0);
  view.run(30, 40);
  check_nesting(view.events, true);
  CHECK(view.events[0].text.find(R"("start_time_since_epoch_in_micros": 1234567)") != std::string::npos);
  std::string told;
  for (const TraceEvent& event : view.events)
    if (event.phase != 'M')
      told += std::string(1, event.phase) + event.name + "@" + std::to_string(event.time) + " ";
  CHECK(
      told ==
      "BNEGOTIATE_ALLREDUCE@10 X1@10 X0@20 E@21 BALLREDUCE@21 BQUEUE@21 E@30 BGLOO_ALLREDUCE@30 E@40 E@40 ");
  CHECK(view.events.back().text.find(R"("args": {"dtype": "float32", "shape": "[2, 3]"})") !=
        std::string::npos);
}

// Rank 1 is through with an operation and announces the next of the same name while this rank still runs the
// first.
TEST(bars_nest_when_a_name_comes_again_before_its_end) {
  View view;
  view.add(RecordKind::kReady, 1, 0);
  view.agree(2, 3, 1);
  view.begin(4);
  view.add(RecordKind::kReady, 5, 1);
  view.add(RecordKind::kRunEnd, 6);
  view.agree(7, 8, 0);
  view.run(9, 10);
  check_nesting(view.events, true);
  CHECK(view.count("NEGOTIATE_ALLREDUCE") == 2 && view.count("ALLREDUCE") == 2);
}

// This rank has joined: the others need not wait until it has run an operation before they start the next.
// Rank 1 is ready for the next operation before this rank has recorded that they met.
TEST(nothing_goes_back_in_time) {
  View view;
  view.add(RecordKind::kReady, 40, 1);
  view.add(RecordKind::kReady, 10, 0);
  view.add(RecordKind::kReady, 20, 1);
  view.add(RecordKind::kRelease, 30);
  view.run(30, 35);
  view.agree(45, 50, 0);
  view.run(50, 55);
  check_nesting(view.events, true);
}

TEST(bars_nest_when_the_next_is_released_before_the_end) {
  View view;
  view.agree(1, 2, 1);
  view.begin(3);
  view.agree(4, 5, 1);
  view.add(RecordKind::kRunEnd, 6);
  view.run(7, 8);
  check_nesting(view.events, true);
  CHECK(view.count("ALLREDUCE") == 2);
}

TEST(what_began_before_the_recording_is_left_out) {
  View view;
  view.add(RecordKind::kRunEnd, 1);
  view.add(RecordKind::kRelease, 2);
  view.add(RecordKind::kReady, 3, 1);
  view.timeline.end(5'009'000);
  check_nesting(view.events, true);
  CHECK(view.count("NEGOTIATE_ALLREDUCE") == 1 && view.count("ALLREDUCE") == 0);
}

// There was no room for the record of its end.
TEST(a_run_ends_at_the_latest_when_the_next_begins) {
  View view;
  view.add(RecordKind::kRunBegin, 1);
  view.add(RecordKind::kTensor, 1);
  view.run(5, 6);
  view.timeline.end(5'009'000);
  check_nesting(view.events, true);
  CHECK(view.count("ALLREDUCE") == 2);
}

TEST(a_name_that_comes_with_several_shapes_has_that_of_each_run) {
  View view;
  view.run(1, 2, 1);
  view.run(3, 4, 3);
  view.run(5, 6, 1);
  check_nesting(view.events, true);
  std::string shapes;
  for (const TraceEvent& event : view.events) shapes += value_of(event.text, "shape");
  CHECK(shapes == "[2, 3][7][2, 3]");
}

TEST(a_refusal_is_an_error_and_a_barrier_only_a_negotiation) {
  View view;
  view.add(RecordKind::kReady, 1, 0);
  view.add(RecordKind::kFailed, 2);
  view.agree(3, 4, 0, 2);
  view.run(5, 6, 2);
  check_nesting(view.events, true);
  CHECK(view.count("ERROR") == 1 && view.count("NEGOTIATE_BARRIER") == 1 && view.count("BARRIER") == 0);
}

TEST(cycles_are_marked_if_wanted) {
  View with(true), without;
  with.add(RecordKind::kCycle, 1);
  without.add(RecordKind::kCycle, 1);
  CHECK(with.count("CYCLE_START") == 1 && without.count("CYCLE_START") == 0);
  check_nesting(with.events, true);
}

TEST(the_file_is_a_whole_array_after_every_write) {
  TemporaryFile temporary;
  JsonArrayFile file;
  CHECK(file.open(temporary.path).ok());
  CHECK(content(temporary.path) == "[\n]\n");
  file.add("1");
  CHECK(file.flush().ok() && content(temporary.path) == "[\n1\n]\n");
  file.add("2");
  file.add("3");
  CHECK(file.flush().ok() && content(temporary.path) == "[\n1,\n2,\n3\n]\n");
}

TEST(a_full_disk_leaves_a_whole_array) {
  TemporaryFile temporary;
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{3000, before.rlim_max};
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  JsonArrayFile file;
  CHECK(file.open(temporary.path).ok());
  bool failed = false;
  for (int i = 0; i < 50; ++i) {
    file.add(std::string(99, '1'));
    failed |= !file.flush().ok();
    const std::string text = content(temporary.path);
    CHECK(text.substr(text.size() - 3) == "\n]\n" && text.find("1,\n]") == std::string::npos);
  }
  CHECK(failed && content(temporary.path).size() > 2500);
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

TEST(a_fold_is_one_bar_that_tells_how_many) {
  View view;
  view.run(10, 20);
  view.add(RecordKind::kFold, 20, uint64_t{4096} << 32 | 5'000'000);
  view.add(RecordKind::kFold, 20, uint64_t{17} << 32, 2);  // barriers have no bar
  view.run(5020, 5030);
  check_nesting(view.events, true);
  CHECK(view.count("ALLREDUCE") == 3);
  int found = 0;
  for (const TraceEvent& event : view.events) {
    if (value_of(event.text, "count").empty()) continue;
    ++found;
    CHECK(event.phase == 'E' && event.time == 5020 && value_of(event.text, "count") == "4096");
    CHECK(value_of(event.text, "shape") == "[2, 3]");
  }
  CHECK(found == 1);
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
