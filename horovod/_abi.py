"""csrc/hvd.h in ctypes: its constants, structs and functions. For _core.py, and for nobody else."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

ABI_VERSION = 5

# Result codes
OK, IN_PROGRESS, INTERRUPTED = 0, 1, 2
INVALID_ARGUMENT, FAILED_PRECONDITION, ABORTED, UNKNOWN = -1, -2, -3, -4

# Kinds of operation; what each does is in csrc/kinds.h
ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, BARRIER, JOIN = range(7)
ADD_PROCESS_SET, REMOVE_PROCESS_SET = 7, 8

# Element types: the code is the index
DTYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "bool",
    "complex64",
    "complex128",
)

# Reduce operations
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)

# Devices whose memory a tensor may be in. Zero, so what a request leaves out.
CPU = 0

# Flags of hvd_timeline_start(), phases of hvd_mark()
TIMELINE_MARK_CYCLES, TIMELINE_ALL_RANKS = 1, 2
MARK_INSTANT, MARK_BEGIN, MARK_END, MARK_STEP = range(4)

# Events, and how stacks were found
EVENT_CLOSED, EVENT_DUMP, EVENT_REPORT, EVENT_STACKS, EVENT_TUNING = range(5)
STACKS_PYTHON, STACKS_SIGNAL, STACKS_STATES = range(3)

TRANSPORTS = {"single": 0, "shm": 1, "tcp": 2, "hierarchical": 3, "mpi": 4}
LOG_LEVELS = {"trace": 0, "debug": 1, "info": 2, "warning": 3, "error": 4, "fatal": 5}


class Peer(ctypes.Structure):
    _fields_ = [("host", c_char_p), ("pid", c_int32), ("same_host", c_int32)]


class Mpi(ctypes.Structure):
    _fields_ = [
        ("handle_bytes", c_int32),
        ("communicator", c_uint64),
        ("byte_type", c_uint64),
        ("isend", c_void_p),
        ("irecv", c_void_p),
        ("test", c_void_p),
        ("error_string", c_void_p),
    ]


class Knobs(ctypes.Structure):
    """The knobs that the core acts on, by their names in the table of the configuration."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("cache_capacity", c_int32),
        ("fusion_threshold", c_int64),
        ("disable_group_fusion", c_int32),
        ("stall_check_disable", c_int32),
        ("stall_check_time_seconds", c_double),
        ("stall_shutdown_time_seconds", c_double),
        ("peer_timeout_seconds", c_double),
        ("host_timeout_seconds", c_double),
        ("log_level", c_int32),
        ("log_hide_time", c_int32),
        ("timeline_buffer", c_int64),
        ("stall_stacks", c_int32),
        ("elastic", c_int32),
    ]


class World(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("transport", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("affinity", c_int32),
        ("shm_fd", c_int32),
        ("peers", ctypes.POINTER(Peer)),
        ("control_fds", ctypes.POINTER(c_int32)),
        ("liveness_fds", ctypes.POINTER(c_int32)),
        ("mesh_fds", ctypes.POINTER(c_int32)),
        ("hosts", ctypes.POINTER(c_int32)),
        ("mpi", ctypes.POINTER(Mpi)),
        ("control_keys", c_char_p),
        ("liveness_keys", c_char_p),
        ("mesh_keys", c_char_p),
        ("knobs", ctypes.POINTER(Knobs)),
        ("control_in_memory", c_int32),
        ("control_parents", ctypes.POINTER(c_int32)),
        ("mesh_streams", c_int32),
    ]


KNOBS = tuple(field[0] for field in Knobs._fields_[1:])


# Pointers that are set for every operation are declared as c_void_p: assigning a plain int is cheapest.
class Tensor(ctypes.Structure):
    _fields_ = [
        ("input", c_void_p),
        ("output", c_void_p),
        ("shape", c_void_p),
        ("ndim", c_int32),
        ("dtype", c_int32),
        ("device", c_int32),
        ("device_index", c_int32),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("name", c_char_p),
        ("process_set", c_int32),
        ("reduce_op", c_int32),
        ("root_rank", c_int32),
        ("tensor_count", c_int32),
        ("tensors", c_void_p),
        ("prescale", c_double),
        ("postscale", c_double),
        ("numbers", c_void_p),
        ("number_count", c_int32),
        ("done", c_void_p),
        ("allocate", c_void_p),
        ("user", c_void_p),
        ("unnamed", c_int32),
        ("attended", c_int32),
    ]


class SummaryStruct(ctypes.Structure):
    _fields_ = [
        ("rank", c_int32),
        ("known", c_int32),
        ("age", c_double),
        ("steps", c_uint64),
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("blocked_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("resident_bytes", c_uint64),
        ("dropped", c_uint64),
        ("pending", c_uint64),
        ("running_ns", c_uint64),
        ("idle_ns", c_uint64),
        ("step_ns", c_uint64),
        ("last_ready", c_uint64),
        ("late_ns", c_uint64),
        ("rtt_ns", c_uint64),
        ("clock_offset_ns", c_int64),
        ("waited_for", c_int32),
        ("name", ctypes.c_char * 112),
    ]


class AutotuneOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("warmup_samples", c_int32),
        ("steps_per_sample", c_int32),
        ("max_samples", c_int32),
        ("keep_fusion_threshold", c_int32),
        ("shuffle", c_int32),
        ("suggested", ctypes.POINTER(c_int64)),
    ]


class EventStruct(ctypes.Structure):
    _fields_ = [
        ("kind", c_int32),
        ("rank", c_int32),
        ("number", c_uint32),
        ("how", c_int32),
        ("text", c_void_p),
    ]


SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hvd_abi_version": (c_int32, []),
    "hvd_shm_bytes": (c_int64, [c_int32]),
    "hvd_shm_bytes_with_heap": (c_int64, [c_int32]),
    "hvd_can_encrypt": (c_int32, []),
    "hvd_create": (c_void_p, [ctypes.POINTER(World)]),
    "hvd_shutdown": (None, [c_void_p]),
    "hvd_destroy": (None, [c_void_p]),
    "hvd_abort": (None, [c_void_p, c_char_p]),
    "hvd_culprit": (c_int32, [c_void_p, ctypes.POINTER(c_int32)]),
    "hvd_after_fork_in_child": (None, [c_void_p]),
    "hvd_submit": (c_int64, [c_void_p, c_void_p]),
    "hvd_run": (c_int32, [c_void_p, c_void_p, c_double, c_void_p]),
    "hvd_poll": (c_int32, [c_void_p, c_int64]),
    "hvd_wait": (c_int32, [c_void_p, c_int64, c_double]),
    "hvd_finish": (c_int32, [c_void_p, c_int64, c_double]),
    "hvd_error": (c_char_p, [c_void_p, c_int64]),
    "hvd_result": (c_int64, [c_void_p, c_int64]),
    "hvd_output_ndim": (c_int32, [c_void_p, c_int64, c_int32]),
    "hvd_output_shape": (c_int32, [c_void_p, c_int64, c_int32, ctypes.POINTER(c_int64)]),
    "hvd_take_output": (c_void_p, [c_void_p, c_int64, c_int32]),
    "hvd_received_splits": (c_int32, [c_void_p, c_int64, ctypes.POINTER(c_int32), c_int32]),
    "hvd_free": (None, [c_void_p]),
    "hvd_allocate_shared": (c_void_p, [c_void_p, c_int64]),
    "hvd_free_shared": (None, [c_void_p]),
    "hvd_release": (None, [c_void_p, c_int64]),
    "hvd_process_set_ids": (c_int32, [c_void_p, ctypes.POINTER(c_int32), c_int32]),
    "hvd_process_set_ranks": (c_int32, [c_void_p, c_int32, ctypes.POINTER(c_int32), c_int32]),
    "hvd_timeline_start": (c_int32, [c_void_p, c_char_p, c_int32]),
    "hvd_timeline_stop": (c_int32, [c_void_p]),
    "hvd_connect": (c_int32, [c_void_p, c_int32, c_int32, c_char_p]),
    "hvd_mark": (None, [c_void_p, c_char_p, c_int32]),
    "hvd_end_step": (None, [c_void_p, c_int64]),
    "hvd_log": (None, [c_void_p, c_int32, c_char_p]),
    "hvd_autotune": (c_int32, [c_void_p, ctypes.POINTER(AutotuneOptions)]),
    "hvd_tunable_names": (c_char_p, []),
    "hvd_metric_names": (c_char_p, []),
    "hvd_metrics": (c_int32, [c_void_p, ctypes.POINTER(c_uint64), c_int32]),
    "hvd_summaries": (c_int32, [c_void_p, ctypes.POINTER(SummaryStruct), c_int32]),
    "hvd_next_event": (c_int32, [c_void_p, c_double, ctypes.POINTER(EventStruct)]),
    "hvd_answer": (None, [c_void_p, c_uint32, c_char_p]),
    "hvd_stack_signal": (None, [c_void_p, c_int32, c_int32]),
    "hvd_keep_recent": (c_int32, [c_void_p, c_int32]),
    "hvd_ask_stacks": (c_int64, [c_void_p, c_int32, c_char_p]),
    "hvd_set_default": (None, [c_void_p]),
    "hvd_last_error": (c_char_p, []),
}


def load(path: str) -> Any:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load Horovod's native library {path}: {error}. Reinstall horovod; in a source tree "
            "`pip install -e .` builds it there."
        ) from error
    for name, (restype, argtypes) in SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise ImportError(
                f"{path} has no function {name}: it is from another version; reinstall horovod"
            ) from error
        function.restype = restype
        function.argtypes = argtypes
    if (found := library.hvd_abi_version()) != ABI_VERSION:
        raise ImportError(f"{path} speaks ABI version {found}, this package {ABI_VERSION}; reinstall horovod")
    return library
