// One rank's engine: takes requests from application threads, announces them to the coordinator, runs what it
// releases, and finishes the tasks. Running is the engine thread's work, or that of an application thread
// that waits for a task anyway: that saves a thread switch. Several engines may live in one process (tests
// run ranks as threads).
#pragma once

#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/abort_signal.h"
#include "base/event.h"
#include "base/log.h"
#include "comm/shm/heap.h"
#include "comm/transport.h"
#include "engine/autotune.h"
#include "engine/called_back.h"
#include "engine/coordinator.h"
#include "engine/executor.h"
#include "engine/inspector.h"
#include "engine/knobs.h"
#include "engine/meeting.h"
#include "engine/metrics.h"
#include "engine/notices.h"
#include "engine/operation_numbers.h"
#include "engine/recent_operations.h"
#include "engine/recorder.h"
#include "engine/stacks.h"
#include "engine/step_ends.h"
#include "engine/task.h"
#include "engine/unnamed.h"
#include "engine/waiters.h"
#include "engine/watch.h"
#include "wire/channel.h"

namespace hvd {

class Engine {
 public:
  // What a world hands over: the communicator's transport and the sockets, see hvd_world.
  struct Parts {
    int rank = 0, size = 1;
    std::shared_ptr<void> memory;      // what the transport works in, if it is ours to unmap
    void* meeting = nullptr;           // in it, if all ranks of the world share it
    std::shared_ptr<SharedHeap> heap;  // in it, if there is room
    std::unique_ptr<Transport> transport;
    std::vector<int> parents;                  // the tree of control connections, see hvd_world
    wire::Channel control;                     // to the rank above; none of rank 0
    std::vector<wire::Channel> control_below;  // of branches_of() this rank, own entry closed
    std::vector<Watch::Watched> watched;
    int affinity = -1;
    bool spin = false;  // there is a processor for every rank of this host
    RecordedRank recorded;
    std::vector<PeerName> peers;  // [rank]
    hvd_knobs knobs = default_knobs();
    std::vector<int> descriptors;  // all of the above, to be closed in a forked child
  };

  Engine(Parts parts, Log log, std::unique_ptr<AbortSignal> abort);
  ~Engine();

  // If it is one that all ranks wait for at this moment, and small: runs it without asking the coordinator.
  // False: it is to be submitted.
  bool run_at_once(const hvd_request& request);
  // `waits`: the caller has nothing else to do until it is done.
  Status submit(const hvd_request& request, hvd_handle* handle, bool waits = false);
  // As Task::wait(); meanwhile this thread runs what is released.
  int wait(Task& task, double seconds);
  // wait() by the thread that submitted an `attended` task a moment ago. But the program is not blocked: the
  // task calls back, and other threads have something to do.
  int help(hvd_handle handle, double seconds);
  std::shared_ptr<Task> task(hvd_handle handle);
  void release(hvd_handle handle);

  void shutdown();
  void abort(const std::string& reason);
  void after_fork_in_child();

  // See hvd_allocate_shared().
  void* allocate_shared(size_t bytes) { return heap_ ? heap_->allocate(bytes) : nullptr; }

  std::vector<int> process_set_ids();
  // False if there is no such set.
  bool process_set_ranks(int id, std::vector<int>* ranks);

  Recorder& recorder() { return recorder_; }
  // See hvd_mark() and hvd_end_step().
  void mark(const char* name, int phase);
  void end_step(int64_t kind);
  // See hvd_connect().
  Status connect(int rank, int fd, const LinkKeys* keys);
  // Searches for better parameters from here on; rank 0 only.
  Status autotune(Autotune::Options options);
  Notices& notices() { return notices_; }
  Stacks& stacks() { return stacks_; }
  RecentOperations& recent() { return recent_; }
  // Of a rank, or of all (-1), as notices; only rank 0 may ask for others. Returns the number that the
  // answers have, 0 if that can't be.
  uint32_t ask_stacks(int rank, const std::string& reason);
  size_t metrics(uint64_t* values, size_t capacity);
  // Rank 0 has all ranks', others only their own.
  std::vector<Summary> summaries();
  // Why it has been aborted, and by whose fault; no error if it has not.
  Status failure() const { return abort_->reason(); }

  int rank() const { return rank_; }
  const Log& log() const { return log_; }

 private:
  // Set in the number of a question that a rank asks about itself: the answer stays there.
  static constexpr uint32_t kOwnQuestion = 1u << 31;
  struct Remembered {
    std::shared_ptr<const wire::Agreement> agreement;
    std::string key;
    bool mine = false;  // this rank had submitted it, so its own request is known:
    wire::Request request;
    WorthMeeting meeting;
  };

  Remembered* to_meet_for(const hvd_request& request, uint32_t* id);
  bool await_meeting(uint64_t begin);
  void add_up(const Reduction& reduction, const void* input, void* output, size_t bytes);
  struct Moments {
    uint64_t begin, start, end;  // when it was called, all had come, and it was done
  };
  void record_meeting(const wire::Request& common, uint32_t id, OperationNumber number,
                      const Moments& moments, uint64_t bytes);
  void count_step(const char* name, std::unique_lock<std::mutex> lock);
  Status check_restrictions(const wire::Request& request);
  void leave_alone(uint32_t more);
  void announce(const std::vector<uint8_t>& frame);
  void announce(const std::vector<uint8_t>& frame, std::unique_lock<std::mutex> sending);
  void make_hub(Parts& parts);
  void run();
  void run_until_finished();
  bool drive();
  short flush_unsent(bool listen = false);
  void sleep(bool listen, const timespec* limit);
  bool sleep_as_driver(double seconds);
  int wait_as_driver(Task& task, double seconds);
  void handle(const uint8_t* data, size_t size);
  bool is_to_report(const wire::Operation& operation) const;
  void run_operation(wire::Operation& operation);
  void log_process_set(const wire::Agreement& agreement) const;
  uint32_t recorded_name(const AgreedTask& task);
  void record_run(OperationNumber number, const std::vector<AgreedTask>& tasks, uint64_t begin,
                  uint64_t bytes);
  void record_wait(RecordKind kind, const Task& task, uint64_t time);
  std::shared_ptr<Task> take_pending(const std::string& key);
  void resend(uint32_t id);
  void begin_closing(const std::string& reason);
  void fail_pending(const Status& reason);
  Watch::Hooks hooks();
  void make_inspector(const hvd_knobs& knobs, std::vector<PeerName> peers);
  wire::Progress progress();
  void count_run(const std::vector<AgreedTask>& tasks, uint64_t bytes, uint64_t begin, uint64_t end);
  void count_operation(int32_t kind, size_t tensors, uint64_t bytes, uint64_t begin, uint64_t end);
  void count_callback(const Task& task);
  void fail();
  void finish(const std::shared_ptr<Task>& task, Status status);
  void go_away(Task& task);
  void come_back(Task& task);

  const int rank_, size_;
  const Log log_;
  std::unique_ptr<AbortSignal> abort_;
  std::shared_ptr<void> memory_;
  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<wire::ControlRings> own_rings_;  // of this engine and its hub
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Meeting> meeting_;  // under driver_mutex_ and mutex_, except for who is away
  std::string key_to_meet_;
  std::vector<std::byte*> sources_to_meet_;
  Executor executor_;
  Recorder recorder_;
  Metrics metrics_;
  Rates rates_;
  RecentOperations recent_;
  Notices notices_;
  Stacks stacks_;
  std::atomic<uint32_t> own_questions_{0};  // about this rank, by itself
  std::mutex step_mutex_;
  StepEnds step_ends_;
  uint64_t last_step_ = 0;
  std::vector<int> descriptors_;
  const int affinity_;
  const bool spin_;
  const int above_;  // the rank that control_ leads to, if there is no hub here
  const bool elastic_;

  // Guards what application threads share with the engine thread.
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Task>> pending_;
  std::vector<std::shared_ptr<Task>> restricting_;  // joins, removals of process sets: pending or just over
  CalledBack called_back_;
  std::unordered_map<hvd_handle, std::shared_ptr<Task>> handles_;
  std::unordered_map<uint32_t, Remembered> cache_;
  std::unordered_map<std::string, uint32_t> cache_ids_;
  hvd_handle next_handle_ = 1;
  Status closed_;  // not ok: submitting fails with this
  bool shutdown_sent_ = false;
  bool failed_ = false;  // the engine thread's; aborted, and not while it was being shut down anyway

  std::mutex send_mutex_;
  wire::Channel control_;  // sending under send_mutex_, receiving under driver_mutex_
  Event wake_;

  // Whoever holds it listens to the coordinator and runs what it releases.
  std::mutex driver_mutex_;
  OperationNumbers numbers_;  // the driver's
  std::atomic<bool> finished_{false};
  std::atomic<int64_t> joins_{0};  // completed ones
  Unnamed unnamed_;
  std::atomic<uint32_t> visits_{0};      // how often application threads have driven
  std::atomic<uint32_t> left_alone_{0};  // operations that nobody waited for at once
  Waiters waiters_;                      // those that could not, as another thread did

  std::unique_ptr<Hub> hub_;              // of rank 0, and of ranks with others below them
  Coordinator* coordinator_ = nullptr;    // rank 0's hub
  std::unique_ptr<Inspector> inspector_;  // rank 0
  std::unique_ptr<Watch> watch_;
  std::mutex shutdown_mutex_;
  std::thread thread_;
};

}  // namespace hvd
