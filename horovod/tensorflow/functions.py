"""The same start on all ranks: broadcast of variables and of Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from horovod.common import objects
from horovod.common.arrays import consecutive
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import ops
from horovod.tensorflow.util import _executing_eagerly, tf_variable


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites variables with the root's.

    In a TF1 graph it returns the op that does so when it is run.

    The variables must be there on all ranks in the same order. `inplace` makes no difference:
    beside them only a part of their values, or one variable's, is in memory at a time.
    """
    given = list(variables)
    targets = [tf_variable(variable) for variable in given]
    if not targets:
        return None if _executing_eagerly() else tf.no_op()
    name = ops.name_of(given)
    assigned: list[Any] = []
    sizes = [(each.shape.num_elements() or 0) * each.dtype.base_dtype.size for each in targets]
    for numbers in consecutive(sizes):
        part = [targets[i] for i in numbers]
        # One after another: each part's values are in memory twice while it is under way.
        with tf.control_dependencies(assigned):
            values = ops.grouped_broadcast(part, root_rank, name, process_set=process_set)
        pairs = zip(part, values, strict=True)
        assigned = [variable.assign(value, read_value=False) for variable, value in pairs]
        del values, pairs
    return None if _executing_eagerly() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> Any:
    """The op that overwrites the TF1 graph's global variables with the root's."""
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() needs a TF1 graph, as there are no global variables in eager "
            "execution; use hvd.broadcast_variables(<model/optimizer variables>, root_rank=...) instead"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Broadcasts all global variables once a MonitoredTrainingSession has made or restored them."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the op before the graph is final; again if the hook is used with another graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object, on every rank of the set. Happens at once; no `session` is needed."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """broadcast_object() as a function of the object alone."""
    return lambda obj: objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order. Happens at once; no `session` is needed."""
    return objects.allgather_object(obj, name, process_set)
