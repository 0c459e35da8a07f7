"""Small helpers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common.session import state
from horovod.common.util import _cache

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "device", "elastic", "tf_variable"]


def _executing_eagerly() -> bool:
    """Whether operations run at once: neither in a tf.function nor in a graph."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Any:
    return tf.function(function)


def elastic() -> bool:
    """Whether the number of ranks may change, so that it must not become a constant of a graph."""
    return state.session is not None and state.session.elastic


def device(name: str) -> contextlib.AbstractContextManager[Any]:
    """tf.device(name), or where TensorFlow wants if there is no name."""
    return tf.device(name) if name else contextlib.nullcontext()


def tf_variable(variable: Any) -> Any:
    """The tf.Variable behind a Keras 3 variable; anything else as it is."""
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable
