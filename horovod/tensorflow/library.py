"""Loads libhorovod_tf.so, whose ops are the way from TensorFlow's graphs to the engine."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from horovod import _core

# All but the barrier and the join, which stay in the order of the program.
_CONCURRENT = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodGroupedBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "HorovodSize",
    "HorovodProcessSetIncluded",
    "HorovodRank",
    "HorovodLocalRank",
    "HorovodLocalSize",
)


_PATH = Path(_core.__file__).with_name("libhorovod_tf.so")


def _load(path: Path) -> Any:
    try:
        library = tf.load_op_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        raise ImportError(
            f"cannot load Horovod's TensorFlow ops {path}: {error}; reinstall horovod"
        ) from error
    failure = ctypes.CDLL(str(path)).horovod_tf_failure
    failure.restype = ctypes.c_char_p
    if text := failure().decode():
        raise ImportError(f"Horovod's ops do not work with TensorFlow {tf.__version__}: {text}")
    return library


def _let_run_concurrently() -> None:
    # Our ops are stateful, so that TensorFlow neither merges nor precomputes them. In a tf.function
    # it would also run them one after another, but for those in this list.
    auto_control_deps.ASYNC_STATEFUL_OPS = auto_control_deps.ASYNC_STATEFUL_OPS.union(_CONCURRENT)
    # And it would leave out those whose results this rank does not use, while others wait for it.
    auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = (
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS.union(_CONCURRENT)
    )


def register_xla() -> bool:
    """Whether XLA has been told of our custom call. To be called once."""
    return bool(ctypes.CDLL(str(_PATH)).horovod_tf_register_xla())


library = _load(_PATH)
_let_run_concurrently()
