// The C ABI of libhorovod.so. Plain C, so that every adapter (ctypes, TensorFlow ops, XLA handlers) can use
// it without a compiler. Nothing throws across it; errors are codes with a text.
//
// Ownership: the engine owns every descriptor handed over in hvd_world from the moment hvd_create() is
// called, whether it succeeds or not. Tensor memory stays the caller's and must live until the handle
// completes.
//
// How it grows: a struct that begins with `struct_size` may get fields at its end. A shorter one, of an older
// caller, is accepted: what it lacks is zero, which means as before, or in hvd_knobs the default. A longer
// one, of a newer caller, is accepted if all that this library does not know is zero; otherwise the call
// fails and says so. The other structs stand in arrays or are filled in here and never change their size.
// What this does not allow takes a new HVD_ABI_VERSION.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))
#define HVD_ABI_VERSION 5
#define HVD_CHANNEL_KEYS_BYTES 32  // 16 to send with, 16 to receive with
#define HVD_MESH_KEYS_BYTES 64     // 32 and 32

typedef struct hvd_engine hvd_engine;
typedef int64_t hvd_handle;

enum {  // result codes
  HVD_OK = 0,
  HVD_IN_PROGRESS = 1,           // hvd_wait: the time ran out first
  HVD_INTERRUPTED = 2,           // hvd_wait: a signal arrived; call again
  HVD_INVALID_ARGUMENT = -1,     // this caller's mistake; the engine goes on
  HVD_FAILED_PRECONDITION = -2,  // ranks disagree (shape, dtype ...) or not initialised; the engine goes on
  HVD_ABORTED = -3,              // the operation is not allowed; the engine goes on
  HVD_UNKNOWN = -4,  // a peer died or the job was shut down; every later operation fails the same way
};

enum {  // kinds of operation
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4,
  HVD_BARRIER = 5,             // no tensors
  HVD_JOIN = 6,                // no tensors; hvd_result() = the rank that joined last
  HVD_ADD_PROCESS_SET = 7,     // no tensors, `numbers` = sorted ranks; hvd_result() = the new id
  HVD_REMOVE_PROCESS_SET = 8,  // no tensors, `process_set` = the id; hvd_result() = 1
};

enum {  // element types
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_BFLOAT16 = 7,
  HVD_FLOAT32 = 8,
  HVD_FLOAT64 = 9,
  HVD_BOOL = 10,
  HVD_COMPLEX64 = 11,
  HVD_COMPLEX128 = 12,
};

enum {  // reduce operations: the numbers users see as hvd.Average ... hvd.Product
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5,
};

enum {                             // transports
  HVD_TRANSPORT_SINGLE = 0,        // one rank
  HVD_TRANSPORT_SHM = 1,           // all ranks share `shm_fd`
  HVD_TRANSPORT_TCP = 2,           // `mesh_fds`
  HVD_TRANSPORT_HIERARCHICAL = 3,  // `hosts`; the ranks of a host share `shm_fd`, `mesh_fds` leads to others
  HVD_TRANSPORT_MPI = 4,           // `mpi`
};

enum {  // devices whose memory a tensor may be in; others are refused
  HVD_CPU = 0,
};

enum {
  HVD_LOG_TRACE = 0,
  HVD_LOG_DEBUG = 1,
  HVD_LOG_INFO = 2,
  HVD_LOG_WARNING = 3,
  HVD_LOG_ERROR = 4,
  HVD_LOG_FATAL = 5
};

typedef struct hvd_peer {
  const char* host;   // for messages
  int32_t pid;        // process id, for messages
  int32_t same_host;  // 1: the pid can be watched from here
} hvd_peer;

// An MPI that the process has loaded and initialised with MPI_THREAD_MULTIPLE. The functions are those of its
// C interface; handles are widened to 64 bits.
typedef struct hvd_mpi {
  int32_t handle_bytes;   // of its handles: 4 (MPICH and its relatives) or 8 (Open MPI and its relatives)
  uint64_t communicator;  // rank r is rank r of the world; only the engine uses it, its errors return
  uint64_t byte_type;     // MPI_BYTE
  void *isend, *irecv, *test, *error_string;
} hvd_mpi;

// The knobs that the core acts on, by their names in the table of the configuration, which says what
// each does. Rank 0's values count where they matter to all.
typedef struct hvd_knobs {
  uint32_t struct_size;  // sizeof(hvd_knobs)
  int32_t cache_capacity;
  int64_t fusion_threshold;
  int32_t disable_group_fusion;
  int32_t stall_check_disable;
  double stall_check_time_seconds;
  double stall_shutdown_time_seconds;
  double peer_timeout_seconds;
  double host_timeout_seconds;
  int32_t log_level;
  int32_t log_hide_time;
  int64_t timeline_buffer;
  int32_t stall_stacks;
  int32_t elastic;
} hvd_knobs;

typedef struct hvd_world {
  uint32_t struct_size;  // sizeof(hvd_world)
  int32_t rank, size;
  int32_t transport;
  int32_t local_rank, local_size;  // only reported again by hvd_default_place()
  int32_t affinity;                // core for the engine thread, -1 = any
  // shm: a memfd of hvd_shm_bytes(size) zero bytes or more, the same on all ranks. hierarchical: one of
  // hvd_shm_bytes(n) or more, the same on the n ranks of this host; may be -1 if n is 1. Otherwise -1.
  int32_t shm_fd;
  const hvd_peer* peers;  // `size` entries
  // Connected, authenticated stream sockets. Rank 0: `size` entries, [r] leads to rank r, [0] = -1.
  // Other ranks: one entry, it leads to rank 0. But see control_parents.
  const int32_t* control_fds;   // negotiation
  const int32_t* liveness_fds;  // heartbeats and aborts
  // tcp, hierarchical: `size` entries for each stream, see mesh_streams, own = -1; otherwise NULL. With
  // hosts, those without a common lane have none (-1), see hvd_connect().
  const int32_t* mesh_fds;
  const int32_t* hosts;  // hierarchical: the number (from 0) of each rank's host; otherwise NULL
  const hvd_mpi* mpi;    // mpi; otherwise NULL
  // HVD_CHANNEL_KEYS_BYTES for each entry of control_fds and liveness_fds: the keys that what is sent and
  // what is received is authenticated with. NULL: nothing is (tests).
  const uint8_t* control_keys;
  const uint8_t* liveness_keys;
  // HVD_MESH_KEYS_BYTES for each entry of mesh_fds: what is sent over them is encrypted. NULL: it is not.
  const uint8_t* mesh_keys;
  const hvd_knobs* knobs;  // NULL: the defaults
  // 1, on all ranks: those that share memory talk to each other through that, and by their control_fds only
  // wake each other.
  int32_t control_in_memory;
  // The control and liveness connections form a tree: [r] is the rank above r, and 0 of rank 0, the same on
  // all ranks. control_fds and liveness_fds then have `size` entries, of which those of the rank above and
  // the ranks right below count. NULL: rank 0 is above all.
  const int32_t* control_parents;
  // So many connections carry the data between two ranks, the same number on all of them; 0 is 1. Then
  // [s * size + r] of mesh_fds and mesh_keys is stream s to rank r.
  int32_t mesh_streams;
} hvd_world;

typedef struct hvd_tensor {
  const void* input;  // may equal output (in place)
  void* output;       // NULL: the engine allocates (see hvd_output) or calls `allocate`
  const int64_t* shape;
  int32_t ndim;
  int32_t dtype;
  int32_t device;        // whose memory input and output are in: HVD_CPU
  int32_t device_index;  // which of them
} hvd_tensor;

typedef struct hvd_outcome {  // of an operation, valid during the `done` call
  int32_t code;
  const char* text;                // "" unless it failed
  int64_t result;                  // see the kinds
  const int32_t* received_splits;  // alltoall
  int32_t split_count;
} hvd_outcome;

typedef void (*hvd_done_fn)(void* user, const hvd_outcome* outcome);
// Called on the engine thread once an output's shape is known; returns the memory or NULL on failure.
typedef void* (*hvd_allocate_fn)(void* user, int32_t index, const int64_t* shape, int32_t ndim);

typedef struct hvd_request {
  uint32_t struct_size;  // sizeof(hvd_request)
  int32_t kind;
  const char* name;  // unique among the pending operations of its process set; see also `unnamed`
  int32_t process_set;
  int32_t reduce_op;     // allreduce, reducescatter
  int32_t root_rank;     // broadcast: a global rank
  int32_t tensor_count;  // more than one: a group that completes together
  const hvd_tensor* tensors;
  double prescale, postscale;
  const int32_t* numbers;  // alltoall: splits (NULL = even); add_process_set: ranks
  int32_t number_count;
  hvd_done_fn done;  // optional, called once on the engine thread; the handle is then released by the engine
  hvd_allocate_fn allocate;  // optional
  void* user;                // for both
  // 1: `name` is only the operation's; the engine appends how many un-named ones of it there were in the
  // process set. Ranks match them by the order of their calls, anew after each join.
  int32_t unnamed;
  int32_t attended;  // 1: hvd_help_default() follows at once
} hvd_request;

HVD_API int32_t hvd_abi_version(void);
HVD_API int64_t hvd_shm_bytes(int32_t size);
// For a larger file, which also has room for tensors, see hvd_allocate_shared(). Any size in between will do.
HVD_API int64_t hvd_shm_bytes_with_heap(int32_t size);

// HVD_OK if `mesh_keys` can be used here, otherwise hvd_last_error() tells what is missing.
HVD_API int32_t hvd_can_encrypt(void);

// Starts an engine. NULL on failure, hvd_last_error() then tells why.
HVD_API hvd_engine* hvd_create(const hvd_world* world);
// Ends the engine on all ranks after what was released has run; blocks until this rank's threads ended.
// Harmless after a failure. `hvd_destroy` frees: no other call may be under way, and handles are invalid
// afterwards.
HVD_API void hvd_shutdown(hvd_engine* engine);
HVD_API void hvd_destroy(hvd_engine* engine);
// Fails every pending and later operation here and on all peers, with `reason`.
HVD_API void hvd_abort(hvd_engine* engine, const char* reason);
// After a failure that ended the engine: the rank whose fault it was, as far as that is known; otherwise -1.
// `silent`, unless NULL: 1 if that rank has not ended, but was not heard any more. Stays after
// hvd_shutdown().
HVD_API int32_t hvd_culprit(hvd_engine* engine, int32_t* silent);
// In a forked child: closes the descriptors and forgets the default engine, without touching threads that do
// not exist there. The engine must not be used there otherwise.
HVD_API void hvd_after_fork_in_child(hvd_engine* engine);

// Returns a handle > 0, or a negative code with hvd_last_error().
HVD_API hvd_handle hvd_submit(hvd_engine* engine, const hvd_request* request);
// All of submitting, waiting and releasing: HVD_OK, and it is over. Otherwise the handle is there if the
// request was taken, as after hvd_wait() with this result; if not, it is 0 and the result an error.
HVD_API int32_t hvd_run(hvd_engine* engine, const hvd_request* request, double seconds, hvd_handle* handle);
// 1 done, 0 not yet. A handle that is not known any more has been released: 1.
HVD_API int32_t hvd_poll(hvd_engine* engine, hvd_handle handle);
// HVD_OK or the operation's error once done; HVD_IN_PROGRESS after `seconds`; HVD_INTERRUPTED on a signal.
HVD_API int32_t hvd_wait(hvd_engine* engine, hvd_handle handle, double seconds);
// As hvd_wait(); after HVD_OK the handle is released, and a handle that is not known any more has been.
HVD_API int32_t hvd_finish(hvd_engine* engine, hvd_handle handle, double seconds);
// After completion, until hvd_release(): the error text ("" if none), the number, engine-allocated outputs,
// received splits.
HVD_API const char* hvd_error(hvd_engine* engine, hvd_handle handle);
HVD_API int64_t hvd_result(hvd_engine* engine, hvd_handle handle);
HVD_API int32_t hvd_output_ndim(hvd_engine* engine, hvd_handle handle, int32_t index);
HVD_API int32_t hvd_output_shape(hvd_engine* engine, hvd_handle handle, int32_t index, int64_t* shape);
// Hands the memory over to the caller, who returns it with hvd_free(). NULL if empty or the caller's own.
HVD_API void* hvd_take_output(hvd_engine* engine, hvd_handle handle, int32_t index);
HVD_API int32_t hvd_received_splits(hvd_engine* engine, hvd_handle handle, int32_t* splits, int32_t capacity);
HVD_API void hvd_free(void* memory);
// Memory for tensors that the ranks of this host reach of each other: an allreduce of what all of them have
// in such memory copies nothing, but for averages of integers, Adasum, and more than 1365 pieces. NULL if
// there is none; any other memory will do then. It lives until hvd_free_shared(), also after the engine; a
// child that was forked must not call that.
HVD_API void* hvd_allocate_shared(hvd_engine* engine, int64_t bytes);
HVD_API void hvd_free_shared(void* memory);
HVD_API void hvd_release(hvd_engine* engine, hvd_handle handle);

// Process sets. Ids in ascending order / sorted ranks; both return the count, at most `capacity` are written;
// an unknown set gives HVD_INVALID_ARGUMENT.
HVD_API int32_t hvd_process_set_ids(hvd_engine* engine, int32_t* ids, int32_t capacity);
HVD_API int32_t hvd_process_set_ranks(hvd_engine* engine, int32_t id, int32_t* ranks, int32_t capacity);

enum {                           // of hvd_timeline_start(); any of them together
  HVD_TIMELINE_MARK_CYCLES = 1,  // each round of releases is an event
  HVD_TIMELINE_ALL_RANKS = 2,    // every rank writes what it records to `path`.rank<number>.part
};
// Rank 0 writes a Chrome trace to `path`; elsewhere nothing happens unless all ranks are recorded. The same
// path again changes nothing, another one ends the first file.
HVD_API int32_t hvd_timeline_start(hvd_engine* engine, const char* path, int32_t flags);
// Returns when everything is in the files.
HVD_API int32_t hvd_timeline_stop(hvd_engine* engine);

// A connection that carries data, to a rank of another host that had none (hvd_world.mesh_fds: -1): before
// the first operation of a process set that needs it, once for each stream in their order. Takes over the
// descriptor, also when it fails. `keys` are those of hvd_world.mesh_keys for one entry, or NULL.
HVD_API int32_t hvd_connect(hvd_engine* engine, int32_t rank, int32_t fd, const uint8_t* keys);

enum {  // phases of hvd_mark()
  HVD_MARK_INSTANT = 0,
  HVD_MARK_BEGIN = 1,
  HVD_MARK_END = 2,
  HVD_MARK_STEP = 3,  // a step of the training ends here
};
// Something of the application's, for the timeline. Costs next to nothing if there is none. Once there was a
// HVD_MARK_STEP only those count as steps.
HVD_API void hvd_mark(hvd_engine* engine, const char* name, int32_t phase);
// The same for adapters, which do not know the whole program: a step of the training ends here, as far as the
// optimizer or tape knows that `kind` stands for, which is not 0. Where several kinds take turns in a program
// (a generator's and a discriminator's) one of them counts. Does nothing on the default engine if there is
// none.
HVD_API void hvd_end_step(hvd_engine* engine, int64_t kind);
HVD_API void hvd_end_step_default(int64_t kind);

// A line of the engine's log, of one of HVD_LOG_*, if that is wanted.
HVD_API void hvd_log(hvd_engine* engine, int32_t level, const char* text);

// What the engine counts, always. The names, one on each line; the values in their order: at most `capacity`
// are written, and the number that there is returned. Times are in nanoseconds.
HVD_API const char* hvd_metric_names(void);
HVD_API int32_t hvd_metrics(hvd_engine* engine, uint64_t* values, int32_t capacity);

// The search for parameters that make steps shorter, on rank 0, which tells the others. HVD_EVENT_TUNING says
// how it goes. Results are the same bits with all of them.
typedef struct hvd_autotune_options {
  uint32_t struct_size;           // sizeof(hvd_autotune_options)
  int32_t warmup_samples;         // that don't count
  int32_t steps_per_sample;       // 1 or more
  int32_t max_samples;            // what is tried at most
  int32_t keep_fusion_threshold;  // 1: it was chosen
  int32_t shuffle;                // 1, for tests: other values for each operation, without an end
  const int64_t* suggested;       // values to try first, in the order of the names, 0 for none; or NULL
} hvd_autotune_options;
HVD_API int32_t hvd_autotune(hvd_engine* engine, const hvd_autotune_options* options);
// The names of what may be tuned, one on each line.
HVD_API const char* hvd_tunable_names(void);

#define HVD_SUMMARY_NAME 112
typedef struct hvd_summary {  // of a rank, as rank 0 heard it last
  int32_t rank;
  int32_t known;  // 0: nothing was heard yet
  double age;     // in seconds
  uint64_t steps, operations, bytes, blocked_ns, cpu_ns, resident_bytes, dropped, pending;
  uint64_t running_ns;  // so long has it run `name`; 0: that has ended
  uint64_t idle_ns;     // so long ago
  uint64_t step_ns;     // the last step took
  uint64_t last_ready;  // so often was it the last to have an operation ready (rank 0 knows)
  uint64_t late_ns;     // and so long had the first one waited then, in all
  uint64_t rtt_ns;
  int64_t clock_offset_ns;
  int32_t waited_for;           // 1: others wait for it, for so long that it was reported
  char name[HVD_SUMMARY_NAME];  // of its latest operation
} hvd_summary;
// Rank 0: of all ranks. Others: only their own. Returns the count, at most `capacity` are written.
HVD_API int32_t hvd_summaries(hvd_engine* engine, hvd_summary* summaries, int32_t capacity);

enum {                   // events
  HVD_EVENT_CLOSED = 0,  // the engine has ended
  HVD_EVENT_DUMP = 1,    // tell where the threads are, by hvd_answer() with this number; `text` is why
  HVD_EVENT_REPORT = 2,  // `text` is an object in JSON: something for the log of events
  HVD_EVENT_STACKS = 3,  // where the threads of `rank` are; `number` is that of hvd_ask_stacks()
  HVD_EVENT_TUNING = 4,  // `text` is an object in JSON: how the search for parameters goes
};
enum {  // how stacks were found
  HVD_STACKS_PYTHON = 0,
  HVD_STACKS_SIGNAL = 1,  // by the handler of a signal
  HVD_STACKS_STATES = 2,  // only the state of each thread
};
typedef struct hvd_event {
  int32_t kind;
  int32_t rank;
  uint32_t number;
  int32_t how;
  char* text;  // the caller's; hvd_free()
} hvd_event;
// For a thread that does nothing else. 1: there is one; 0: none came within `seconds`.
HVD_API int32_t hvd_next_event(hvd_engine* engine, double seconds, hvd_event* event);
HVD_API void hvd_answer(hvd_engine* engine, uint32_t number, const char* text);
// If nobody answers, `signal` is raised, whose handler writes the stacks to the other end of `pipe`, which
// does not block. -1, -1: not any more.
HVD_API void hvd_stack_signal(hvd_engine* engine, int32_t signal, int32_t pipe);
// The last operations, also in this file in memory, for whoever has it when this process is gone. It stays
// the caller's.
HVD_API int32_t hvd_keep_recent(hvd_engine* engine, int32_t fd);
// Asks for the stacks of a rank, or of all (-1); they come as events with the number that is returned.
// HVD_INVALID_ARGUMENT if there is no such rank; only rank 0 can ask others.
HVD_API int64_t hvd_ask_stacks(hvd_engine* engine, int32_t rank, const char* reason);

// Native adapters (TensorFlow, XLA) work with the process's default engine. NULL clears it. An engine that is
// being used this way lives until the use is over.
HVD_API void hvd_set_default(hvd_engine* engine);
// As hvd_submit(), on the default engine; HVD_FAILED_PRECONDITION if there is none.
HVD_API hvd_handle hvd_submit_default(const hvd_request* request);
// For a thread that has nothing to do until such an operation, one with `done`, is over: it does the engine's
// work until then, which is quicker than waking up the engine's own threads. HVD_OK if it is over,
// HVD_IN_PROGRESS after `seconds`, or at once if it is called by a `done`; HVD_INTERRUPTED on a signal.
HVD_API int32_t hvd_help_default(hvd_handle handle, double seconds);
// As hvd_submit_default(), and waits for the end: this thread does the engine's work meanwhile, as in
// hvd_wait(). HVD_OK or the operation's error with hvd_last_error(). `done` is called once the operation is
// over, on this thread, unless it was refused.
HVD_API int32_t hvd_run_default(const hvd_request* request);
typedef struct hvd_place {
  int32_t rank, size, local_rank, local_size;
} hvd_place;
// HVD_OK, or HVD_FAILED_PRECONDITION if there is no default engine.
HVD_API int32_t hvd_default_place(hvd_place* place);
// The number of ranks in a process set and whether this one is among them; HVD_FAILED_PRECONDITION if there
// is no default engine, HVD_INVALID_ARGUMENT if there is no such set.
HVD_API int32_t hvd_default_process_set(int32_t id, int32_t* size, int32_t* included);

// The text of this thread's last failed call.
HVD_API const char* hvd_last_error(void);

#ifdef __cplusplus
}
#endif
