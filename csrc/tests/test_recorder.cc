// What engines record, in the files and by which thread.
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "comm/course.h"
#include "engine/record_file.h"
#include "thread_world.h"
#include "trace_events.h"

using hvd::Record;
using hvd::RecordKind;

namespace {

struct Directory {
  Directory() { CHECK(mkdtemp(path) != nullptr); }
  ~Directory() {
    DIR* opened = opendir(path);
    while (dirent* entry = readdir(opened)) unlink((std::string(path) + "/" + entry->d_name).c_str());
    closedir(opened);
    rmdir(path);
  }
  std::string file() const { return std::string(path) + "/trace.json"; }
  std::string part(int rank) const { return file() + ".rank" + std::to_string(rank) + ".part"; }
  char path[32] = "/tmp/hvd-test-XXXXXX";
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<TraceEvent> trace(const std::string& path) {
  const std::string text = content(path);
  CHECK(text.substr(0, 2) == "[\n" && text.substr(text.size() - 3) == "\n]\n");
  std::vector<TraceEvent> events;
  for (size_t at = 2; at < text.size() - 3;) {
    const size_t end = text.find('\n', at);
    events.push_back(trace_event(text.substr(at, end - at)));
    at = end + 1;
  }
  return events;
}

struct Part {
  std::vector<uint32_t> blocks;
  std::vector<Record> records;
  std::string header, end;
  size_t names = 0;  // bytes
  int count(RecordKind kind) const {
    int found = 0;
    for (const Record& record : records) found += record.kind == kind;
    return found;
  }
};

Part read_part(const std::string& path) {
  const std::string text = content(path);
  CHECK(text.substr(0, 8) == "HVDPART1");
  Part part;
  for (size_t at = 8; at < text.size();) {
    uint32_t head[3];
    CHECK(at + sizeof head <= text.size());
    std::memcpy(head, text.data() + at, sizeof head);
    const auto* payload = reinterpret_cast<const uint8_t*>(text.data()) + at + sizeof head;
    CHECK(at + sizeof head + head[1] <= text.size());
    CHECK(hvd::crc32(payload, head[1]) == head[2]);
    const std::string block(reinterpret_cast<const char*>(payload), head[1]);
    part.blocks.push_back(head[0]);
    if (head[0] == 1) part.header = block;
    if (head[0] == 2) part.names += head[1];
    if (head[0] == 3) {
      CHECK(head[1] % sizeof(Record) == 0);
      const size_t before = part.records.size();
      part.records.resize(before + head[1] / sizeof(Record));
      std::memcpy(part.records.data() + before, payload, head[1]);
    }
    if (head[0] == 4) part.end = block;
    at += sizeof head + head[1];
  }
  return part;
}

// Both ranks' parts have so many aborts, and a last block with this text.
void check_end_of_two(const Directory& directory, int aborts, const char* text) {
  for (int rank = 0; rank < 2; ++rank) {
    const Part part = read_part(directory.part(rank));
    CHECK(part.count(RecordKind::kAbort) == aborts && part.end.find(text) != std::string::npos);
  }
}

// Calls function(id, name) for each thread of this process.
template <typename Function>
void each_thread(Function&& function) {
  DIR* tasks = opendir("/proc/self/task");
  while (dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    std::getline(file, name);
    function(std::atoi(entry->d_name), name);
  }
  closedir(tasks);
}

// Bytes that the threads of this process have written by write(), without that of the recorder.
uint64_t written_by_others() {
  uint64_t sum = 0;
  each_thread([&](int id, const std::string& name) {
    std::ifstream io("/proc/self/task/" + std::to_string(id) + "/io");
    std::string key;
    uint64_t value = 0;
    while (io >> key >> value)
      if (key == "wchar:" && name != "hvd-recorder") sum += value;
  });
  return sum;
}

}  // namespace

TEST(crc_is_that_of_zlib) {
  const auto* digits = reinterpret_cast<const uint8_t*>("1234567890123456789012345");
  CHECK(hvd::crc32(digits, 9) == 0xCBF43926u);
  CHECK(hvd::crc32(digits, 7) == 0x5003699Fu && hvd::crc32(digits, 25) == 0xEFC0DE57u);
}

// A slow file system must not hold up the negotiation, which is everyone's.
TEST(only_the_recorder_writes_to_files) {
  Directory directory;
  ThreadWorld(2).run([&](Rank& rank) {
    std::vector<float> data(1);
    CHECK(rank.allreduce("first", data) == HVD_OK);
    CHECK(rank.rank != 0 || hvd_timeline_start(rank.engine, directory.file().c_str(), 1) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "begin") == HVD_OK);
    const uint64_t before = written_by_others();
    for (int i = 0; i < 200; ++i) CHECK(rank.allreduce(i % 2 == 0 ? "traced" : "too", data) == HVD_OK);
    // The events that wake threads up are 8 bytes each; the trace of these operations is some 150 KB.
    CHECK(written_by_others() - before < 20'000);
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
    if (rank.rank == 0) CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
  CHECK(content(directory.file()).size() > 50'000);
}

// Writing must not take a processor from a rank that could run.
TEST(the_recorder_stands_back) {
  Directory directory;
  ThreadWorld(1).run([&](Rank& rank) {
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), 0) == HVD_OK);
    int found = 0;
    for (int tries = 0; found == 0 && tries < 1000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      each_thread([&](int id, const std::string& name) {
        found += name == "hvd-recorder" && sched_getscheduler(id) == SCHED_BATCH &&
                 getpriority(PRIO_PROCESS, static_cast<id_t>(id)) > getpriority(PRIO_PROCESS, 0);
      });
    }
    CHECK(found == 1);
    CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
}

TEST(bars_of_asynchronous_operations_nest) {
  Directory directory;
  ThreadWorld(3).run([&](Rank& rank) {
    if (rank.rank == 0) CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), 1) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "begin") == HVD_OK);
    constexpr int kNames = 4;
    std::vector<std::vector<float>> data(kNames, std::vector<float>(3000));
    for (int round = 0; round < 100; ++round) {
      std::vector<hvd_handle> handles;
      for (int i = 0; i < kNames; ++i)
        handles.push_back(rank.allreduce_async("t" + std::to_string(i), data[static_cast<size_t>(i)]));
      for (hvd_handle handle : handles) CHECK(rank.finish(handle) == HVD_OK);
    }
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);
    if (rank.rank == 0) CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
  const std::vector<TraceEvent> events = trace(directory.file());
  check_nesting(events, true);
  int runs = 0, ticks = 0;
  for (const TraceEvent& event : events) {
    runs += event.phase == 'B' && event.name == "ALLREDUCE";
    ticks += event.phase == 'X';
  }
  CHECK(runs == 400 && ticks > 3 * 400 + 3);  // also those of the barriers, except what came too early
}

TEST(starting_and_stopping_meanwhile_leaves_whole_files) {
  Directory directory;
  static std::atomic<bool> over;
  over = false;
  ThreadWorld(2).run([&](Rank& rank) {
    std::thread other;
    if (rank.rank == 0)
      other = std::thread([&] {
        for (int i = 0; i < 40 || !over; ++i) {
          CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), 3) == HVD_OK);
          CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
          check_nesting(trace(directory.file()), true);
        }
      });
    std::vector<float> data(1);
    for (int i = 0; i < 2000; ++i) CHECK(rank.allreduce("x", data) == HVD_OK);
    over = true;
    if (other.joinable()) other.join();
  });
  read_part(directory.part(0));
}

TEST(threads_that_start_it_at_the_same_time_do_so_one_after_the_other) {
  Directory directory;
  ThreadWorld(1).run([&](Rank& rank) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        for (int round = 0; round < 100; ++round) {
          const std::string path = directory.file() + std::to_string(round % 2);
          CHECK(hvd_timeline_start(rank.engine, path.c_str(), 0) == HVD_OK);
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
  for (const char* file : {"0", "1"}) check_nesting(trace(directory.file() + file), true);
}

TEST(a_shutdown_is_no_abort) {
  Directory directory;
  static std::atomic<bool> over;
  over = false;
  ThreadWorld(2).run([&](Rank& rank) {
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "begin") == HVD_OK);
    if (rank.rank == 0) {
      hvd_shutdown(rank.engine);  // for all; rank 1 notices that this one closes its connections
      over = true;
    } else {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
  check_end_of_two(directory, 0, "\"reason\": \"\"");
}

TEST(an_abort_is_recorded_with_its_reason) {
  Directory directory;
  ThreadWorld(2).run([&](Rank& rank) {
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
    if (rank.rank == 1) hvd_abort(rank.engine, "for the test");
    CHECK(rank.simple(HVD_BARRIER, "begin") != HVD_OK);
  });
  check_end_of_two(directory, 1, "for the test");
}

TEST(every_rank_has_a_part_and_operations_have_the_same_numbers) {
  Directory directory;
  ThreadWorld(3).run([&](Rank& rank) {
    const int64_t set_size = 2;
    std::vector<float> data(256);
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "begin") == HVD_OK);
    for (int generation = 0; generation < 2; ++generation) {
      int64_t set = 0;
      CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {1, 2}) == HVD_OK && set == 1);
      for (int64_t i = 0; rank.rank > 0 && i < set_size; ++i)
        CHECK(rank.allreduce("in set", data, HVD_SUM, 1) == HVD_OK);
      CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, 1) == HVD_OK);
    }
    hvd_mark(rank.engine, "epoch", HVD_MARK_BEGIN);
    CHECK(rank.allreduce("of all", data) == HVD_OK);
    hvd_mark(rank.engine, "epoch", HVD_MARK_END);
    hvd_mark(rank.engine, "step", HVD_MARK_STEP);
    CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
  std::vector<std::multiset<std::string>> runs(3);
  for (int rank = 0; rank < 3; ++rank) {
    const Part part = read_part(directory.part(rank));
    CHECK(part.blocks.front() == 1 && part.blocks.back() == 4);
    CHECK(part.header.find("\"rank\": " + std::to_string(rank) + ", \"size\": 3") != std::string::npos);
    CHECK(part.end.find("\"dropped\": 0") != std::string::npos);
    const size_t speed = part.header.find("\"copy_speed\": ");
    CHECK(speed != std::string::npos && std::atof(part.header.c_str() + speed + 14) > 1e7);
    CHECK(part.header.find("\"link_speed\": ") != std::string::npos);
    CHECK(part.header.find("\"processors\": \"") != std::string::npos);
    CHECK(part.header.find("\"quota\": ") != std::string::npos);
    CHECK(part.count(RecordKind::kProcessor) > 0);
    CHECK(part.names > 0 && part.count(RecordKind::kStep) == 1);
    CHECK(part.count(RecordKind::kMarkBegin) == 1 && part.count(RecordKind::kMarkEnd) == 1);
    CHECK(part.count(RecordKind::kSubmit) >= (rank == 0 ? 5 : 9));
    CHECK((part.count(RecordKind::kReady) > 0) == (rank == 0));
    CHECK(part.count(RecordKind::kRunBegin) == part.count(RecordKind::kRunEnd));
    std::map<RecordKind, uint64_t> last;
    for (const Record& record : part.records) {
      CHECK(record.time >= last[record.kind]);
      // Nobody has never waited for a processor; a kernel may not tell.
      if (record.kind == RecordKind::kProcessor)
        CHECK(record.argument > 0 && (record.bytes > 0) == std::ifstream("/proc/self/schedstat").good());
      last[record.kind] = record.time;
      if (record.kind == RecordKind::kRunBegin)
        runs[static_cast<size_t>(rank)].insert(std::to_string(record.set) + "." +
                                               std::to_string(record.generation) + "." +
                                               std::to_string(record.operation));
    }
  }
  CHECK(runs[1] == runs[2] && runs[1].count("1.0.1") == 1 && runs[1].count("1.1.2") == 1);
  for (const std::string& number : runs[0]) CHECK(runs[1].count(number) == 1);
  CHECK(runs[1].size() == runs[0].size() + 4);
}

// Many in a row are folded, by the short way and by the coordinator's, and none is missing or there twice.
TEST(every_operation_is_recorded_alone_or_in_a_fold) {
  for (size_t count : {1, 8 << 10}) {
    Directory directory;
    ThreadWorld(2).run([&](Rank& rank) {
      std::vector<float> data(count);
      CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
      for (int i = 0; i < 5000; ++i)
        CHECK((i % 500 < 400 ? rank.run("often", data) : rank.allreduce("often", data)) == HVD_OK);
      CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
    });
    check_nesting(trace(directory.file()), true);
    for (int rank = 0; rank < 2; ++rank) {
      const Part part = read_part(directory.part(rank));
      std::map<uint64_t, int> found;
      std::multiset<uint32_t> released, begun;
      for (const Record& record : part.records) {
        CHECK(record.kind != RecordKind::kMeeting);
        if (record.kind == RecordKind::kRelease) released.insert(record.operation);
        if (record.kind == RecordKind::kRunBegin) begun.insert(record.operation);
        if (record.kind == RecordKind::kRunEnd) found[record.operation]++;
        if (record.kind == RecordKind::kFold)
          for (uint64_t i = 0; i < record.argument >> 32; ++i) found[record.operation + i]++;
      }
      CHECK(found.size() == 5000 && found.begin()->first == 1 && found.rbegin()->first == 5000);
      for (const auto& each : found) CHECK(each.second == 1);
      CHECK(released == (rank == 0 ? begun : std::multiset<uint32_t>()));
      CHECK(part.count(RecordKind::kRunBegin) == part.count(RecordKind::kRunEnd));
      CHECK(part.end.find("\"dropped\": 0") != std::string::npos);
    }
  }
}

// [number of the tensor's elements]: by which algorithm, and which phases rank 0 records, in which order.
TEST(algorithms_and_phases_are_recorded) {
  struct Case {
    std::vector<int> hosts;
    size_t count;
    hvd::Algorithm algorithm;
    std::vector<int> phases;
  };
  const Case cases[] = {
      {{}, 10, hvd::Algorithm::kOnce, {}},
      {{}, 100'000, hvd::Algorithm::kPipelined, {}},
      {{0, 1}, 10, hvd::Algorithm::kWhole, {}},
      {{0, 1}, 100'000, hvd::Algorithm::kShared, {}},
      {{0, 0, 1}, 10, hvd::Algorithm::kHosts, {1, 2, 3}},
      {{0, 0, 1}, 5 << 20, hvd::Algorithm::kBlocks, {1, 1, 2, 2, 3, 3}},
  };
  for (const Case& each : cases) {
    Directory directory;
    WorldOptions options;
    if (!each.hosts.empty()) options.transport = HVD_TRANSPORT_HIERARCHICAL;
    options.hosts = each.hosts;
    const int size = each.hosts.empty() ? 2 : static_cast<int>(each.hosts.size());
    ThreadWorld(size, options).run([&](Rank& rank) {
      std::vector<float> data(each.count);
      CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
      CHECK(rank.allreduce("x", data) == HVD_OK);
      CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
    });
    const Part part = read_part(directory.part(0));
    uint64_t begin = 0, end = 0;
    std::vector<int> phases;
    for (const Record& record : part.records) {
      if (record.kind == RecordKind::kRunBegin) begin = record.time;
      if (record.kind == RecordKind::kRunEnd) end = record.time;
      if (record.kind == RecordKind::kRunEnd) CHECK(record.extra == static_cast<uint16_t>(each.algorithm));
    }
    for (const Record& record : part.records) {
      if (record.kind != RecordKind::kPhase) continue;
      CHECK(record.time >= begin && record.time + record.argument <= end && record.bytes > 0);
      phases.push_back(record.extra);
    }
    std::sort(phases.begin(), phases.end());
    CHECK(phases == each.phases);
  }
}

TEST(what_does_not_fit_is_left_out_and_counted) {
  Directory directory;
  WorldOptions options;
  options.knobs.timeline_buffer = 4096;  // about a hundred records
  ThreadWorld(1, options).run([&](Rank& rank) {
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
    for (int i = 0; i < 200'000; ++i) hvd_mark(rank.engine, "often", HVD_MARK_INSTANT);
    CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
  });
  const Part part = read_part(directory.part(0));
  uint64_t dropped = 0;
  for (const Record& record : part.records)
    if (record.kind == RecordKind::kDropped) dropped += record.argument;
  CHECK(dropped > 0 && dropped + static_cast<uint64_t>(part.count(RecordKind::kMark)) == 200'000);
  CHECK(part.end.find("\"dropped\": " + std::to_string(dropped)) != std::string::npos);
}

TEST(a_full_disk_does_not_end_the_job) {
  Directory directory;
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{200'000, before.rlim_max};
  ThreadWorld(2).run([&](Rank& rank) {
    std::vector<float> data(1);
    CHECK(rank.allreduce("first", data) == HVD_OK);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(hvd_timeline_start(rank.engine, directory.file().c_str(), HVD_TIMELINE_ALL_RANKS) == HVD_OK);
    for (int i = 0; i < 2000; ++i) CHECK(rank.allreduce(i % 2 == 0 ? "traced" : "too", data) == HVD_OK);
    CHECK(hvd_timeline_stop(rank.engine) == HVD_OK);
    CHECK(rank.allreduce("last", data) == HVD_OK);
  });
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(trace(directory.file()).size() > 500);
}

TEST(a_path_that_can_not_be_written_is_refused) {
  ThreadWorld(1).run([](Rank& rank) {
    CHECK(hvd_timeline_start(rank.engine, "/no/such/directory/trace.json", 0) == HVD_INVALID_ARGUMENT);
    CHECK(std::string(hvd_last_error()).find("/no/such/directory/trace.json") != std::string::npos);
  });
}

int main(int argc, char** argv) {
  alarm(300);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
