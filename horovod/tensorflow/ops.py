"""The collectives as TensorFlow ops: tensors only.

What else users may pass is up to horovod.tensorflow.

They work eagerly, in a tf.function and in a TF1 graph. In graphs an operation is matched with those
of other ranks by its node's name; eagerly by `name`, or else by the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, id_of
from horovod.tensorflow import xla, xla_collectives
from horovod.tensorflow.library import library
from horovod.tensorflow.util import _executing_eagerly


def _normalize_name(name: str) -> str:
    """A name with `_` for everything but letters and digits."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _naming(
    op_type: str, tensors: Sequence[Any], name: str | None, ignore_name_scope: bool
) -> dict[str, Any]:
    """The arguments that name an operation."""
    if _executing_eagerly():
        return {"tensor_name": name or "", "ignore_name_scope": ignore_name_scope}
    if name is None:
        ends = tensors if len(tensors) == 1 else [tensors[0], tensors[-1]]
        name = "_".join([op_type, *(_normalize_name(_name_in_graph(tensor)) for tensor in ends)])
    # What TensorFlow does not take in the name of a node
    return {"name": re.sub(r"[^A-Za-z0-9_.\\/>-]", "_", name), "ignore_name_scope": ignore_name_scope}


def _name_in_graph(tensor: Any) -> str:
    """Its name; the same on all ranks also for an eager tensor that a function captures.

    TensorFlow names those by a number that counts what was made in this process before.
    """
    return re.sub(r"(^|/)\d+(_\d+)?(?=:|$)", r"\1captured", tensor.name)


def _target(
    op_type: str, tensors: Sequence[Any], name: str | None, ignore_name_scope: bool, process_set: ProcessSet
) -> xla_collectives.Target:
    """What names an operation in a compiled function."""
    naming = _naming(op_type, tensors, name, ignore_name_scope)
    return xla_collectives.Target(naming["name"], number_of(process_set))


def number_of(process_set: ProcessSet) -> int:
    """The set's id; InvalidArgumentError, as for all mistakes
    of this rank alone, if it is not registered."""
    try:
        return id_of(process_set)
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


def _tensors(values: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(value) for value in values]


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' tensors combined element by element."""
    tensor = tf.convert_to_tensor(tensor)
    if xla.compiling():
        return _grouped_allreduce(
            [tensor], name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )[0]
    return library.horovod_allreduce(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set_id=number_of(process_set),
        **_naming("HorovodAllreduce", [tensor], name, ignore_name_scope),
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    stays: bool = False,
) -> list[Any]:
    """_allreduce() of several tensors together; their dtypes may differ.

    `stays`: the thread that comes here helps with the operation, as it has nothing better to do.
    """
    tensors = _tensors(tensors)
    if not tensors:
        return []
    if xla.compiling():
        target = _target("HorovodAllreduce", tensors, name, ignore_name_scope, process_set)
        return xla_collectives.allreduce(tensors, target, op, prescale_factor, postscale_factor)
    reduced = library.horovod_grouped_allreduce(
        tensors,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set_id=number_of(process_set),
        stays=stays,
        **_naming("HorovodGroupedAllreduce", tensors, name, ignore_name_scope),
    )
    # After an asynchronous op TensorFlow gives everything that has become ready to its threads, piece by
    # piece, and wakes them for it; what follows a plain one stays on the thread that is there.
    return list(tf.identity_n(reduced) if stays and len(reduced) > 1 else reduced)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The ranks' tensors one after another along the first
    dimension, which may differ from rank to rank."""
    tensor = tf.convert_to_tensor(tensor)
    if xla.compiling():
        return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]
    return library.horovod_allgather(
        tensor,
        process_set_id=number_of(process_set),
        **_naming("HorovodAllgather", [tensor], name, ignore_name_scope),
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather() of several tensors together; their dtypes may differ."""
    tensors = _tensors(tensors)
    if not tensors:
        return []
    if xla.compiling():
        target = _target("HorovodAllgather", tensors, name, ignore_name_scope, process_set)
        return xla_collectives.allgather(tensors, target)
    return list(
        library.horovod_grouped_allgather(
            tensors,
            process_set_id=number_of(process_set),
            **_naming("HorovodGroupedAllgather", tensors, name, ignore_name_scope),
        )
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of `root_rank`, which is a global rank also within a process set."""
    tensor = tf.convert_to_tensor(tensor)
    if xla.compiling():
        return grouped_broadcast([tensor], root_rank, name, ignore_name_scope, process_set)[0]
    return library.horovod_broadcast(
        tensor,
        root_rank=root_rank,
        process_set_id=number_of(process_set),
        **_naming("HorovodBroadcast", [tensor], name, ignore_name_scope),
    )


def grouped_broadcast(
    tensors: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """broadcast() of several tensors together; their dtypes may differ."""
    tensors = _tensors(tensors)
    if not tensors:
        return []
    if xla.compiling():
        target = _target("HorovodBroadcast", tensors, name, ignore_name_scope, process_set)
        return xla_collectives.broadcast(tensors, target, root_rank)
    return list(
        library.horovod_grouped_broadcast(
            tensors,
            root_rank=root_rank,
            process_set_id=number_of(process_set),
            **_naming("HorovodGroupedBroadcast", tensors, name, ignore_name_scope),
        )
    )


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables with the root's and returns the new values.

    All must be resource variables or all ref variables.
    """
    variables = list(variables)
    if len({_is_resource(variable) for variable in variables}) > 1:
        raise ValueError(
            "broadcast_() takes either resource variables or ref variables, not both kinds at once"
        )
    values = grouped_broadcast(variables, root_rank, name or name_of(variables), process_set=process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
    if _executing_eagerly():
        return values
    with tf.control_dependencies(assigned):
        return [tf.identity(value) for value in values]


def name_of(variables: Sequence[Any]) -> str | None:
    """The name of a broadcast of variables in a graph, made from those of the first and the last.

    Not from the names of the tensors that are read from them, which number all reads of a rank; and
    without the numbers that Keras gives to layers of one kind, as a rank may have more of them: also
    within the names of an optimizer's variables, as in adam/sequential_1_dense_3_kernel_momentum.
    """
    if _executing_eagerly():
        return None
    ends = [variables[0]] if len(variables) == 1 else [variables[0], variables[-1]]
    paths = [re.sub(r"(_\d+)+(?=[_/:]|$)", "", getattr(variable, "path", variable.name)) for variable in ends]
    return "_".join(["HorovodBroadcast", *map(_normalize_name, paths)])


def _is_resource(variable: Any) -> bool:
    handle = getattr(variable, "handle", None)
    return handle is not None and handle.dtype == tf.resource


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends splits[i] rows to rank i; without `splits` the same number to each.

    Returns the rows received, in rank order; and with `splits` also how many came from each rank.
    """
    tensor = tf.convert_to_tensor(tensor)
    if xla.compiling():
        target = _target("HorovodAlltoall", [tensor], name, ignore_name_scope, process_set)
        output, received = xla_collectives.alltoall(tensor, target, splits)
        return output if splits is None else (output, received)
    numbers = tf.convert_to_tensor([] if splits is None else splits, dtype=tf.int32)
    output, received = library.horovod_alltoall(
        tensor,
        numbers,
        even_splits=splits is None,
        process_set_id=number_of(process_set),
        **_naming("HorovodAlltoall", [tensor], name, ignore_name_scope),
    )
    return output if splits is None else (output, received)


def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """This rank's share of the rows of what _allreduce()
    gives; the lowest ranks get the larger shares."""
    tensor = tf.convert_to_tensor(tensor)
    if xla.compiling():
        return _grouped_reducescatter(
            [tensor], name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )[0]
    return library.horovod_reducescatter(
        tensor,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set_id=number_of(process_set),
        **_naming("HorovodReducescatter", [tensor], name, ignore_name_scope),
    )


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """_reducescatter() of several tensors together; their dtypes may differ."""
    tensors = _tensors(tensors)
    if not tensors:
        return []
    if xla.compiling():
        target = _target("HorovodReducescatter", tensors, name, ignore_name_scope, process_set)
        return xla_collectives.reducescatter(tensors, target, op, prescale_factor, postscale_factor)
    return list(
        library.horovod_grouped_reducescatter(
            tensors,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set_id=number_of(process_set),
            **_naming("HorovodGroupedReducescatter", tensors, name, ignore_name_scope),
        )
    )


def join() -> Any:
    """Declares that this rank has no more data and waits
    until all have joined; the last one's rank."""
    xla.refuse_if_compiling("hvd.join()")
    return library.horovod_join()


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Waits until every rank of the set has come here. In a TF1 graph this is an op to run."""
    xla.refuse_if_compiling("hvd.barrier()")
    return library.horovod_barrier(process_set_id=number_of(process_set))
