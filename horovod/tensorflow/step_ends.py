"""Where a step of the training ends, as the reduction of its gradients knows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.steps import end_step, kind_named
from horovod.tensorflow import xla
from horovod.tensorflow.library import library
from horovod.tensorflow.util import _executing_eagerly, tf_variable

_NUMBER = "_horovod_number"

_numbers = itertools.count()


def variables_among(sources: Iterable[Any]) -> list[Any]:
    """The tf.Variables. Without any, nothing is trained."""
    return [v for v in map(tf_variable, sources) if isinstance(v, tf.Variable)]


def kind_of(name: str, trained: Sequence[Any] | None) -> int:
    """The kind of step that ends when `name` has reduced the gradients of these; 0 if it is none.

    The first variable tells the parts of a model from each other that are trained in turns.
    """
    variables = variables_among(trained or ())
    if not variables:
        return 0
    first = variables[0]  # whose name need not be its own
    if not hasattr(first, _NUMBER):
        setattr(first, _NUMBER, next(_numbers))
    return kind_named(f"{name} {getattr(first, _NUMBER)}")


def ending(kind: int, gradients: Iterable[Any]) -> list[Any]:
    """The gradients, of which some may be None. A step of this kind ends when all are there."""
    results = list(gradients)
    present = [i for i, gradient in enumerate(results) if gradient is not None]
    if kind == 0 or not present:
        return results
    if _executing_eagerly():
        end_step(kind)
    elif xla.compiling():
        xla.end_step(kind)
    else:
        with tf.control_dependencies([results[i] for i in present]):
            ended = library.horovod_end_step(kind=kind)
        # A function runs it anyway, a session only what something needs.
        with tf.control_dependencies([ended]):
            last = present[0]  # the backward pass comes to it last
            results[last] = tf.nest.map_structure(tf.identity, results[last], expand_composites=True)
    return results
