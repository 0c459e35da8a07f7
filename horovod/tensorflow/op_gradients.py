"""The gradients of the ops, so that a model may have collectives in its midst."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import session as sessions
from horovod.common.basics import Average, Sum
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import ops, place_ops
from horovod.tensorflow.util import _executing_eagerly


class _KnownSet(ProcessSet):
    """The set that an op's attribute names."""

    def __init__(self, number: int) -> None:
        self.process_set_id = number

    def own_index(self) -> Any:
        """This rank's place in the set; that among all ranks
        is found at run time, as it may change."""
        if self.process_set_id == 0:
            return place_ops.rank_op()
        session = sessions.for_query()
        ranks = session.engine.process_set_ranks(self.process_set_id or 0) or []
        return ranks.index(session.place.rank)


def _name(op: Any) -> str | None:
    """After the operation itself, whose name is the same on
    all ranks; a gradient tensor's need not be."""
    if _executing_eagerly():
        return None
    return f"{op.outputs[0].op.name.rsplit('/', 1)[-1]}_grad"


def _common(op: Any) -> dict[str, Any]:
    return {
        "name": _name(op),
        "ignore_name_scope": bool(op.get_attr("ignore_name_scope")),
        "process_set": _KnownSet(int(op.get_attr("process_set_id"))),
    }


def _reduction(op: Any) -> dict[str, Any]:
    return {
        "op": int(op.get_attr("reduce_op")),
        "prescale_factor": float(op.get_attr("prescale_factor")),
        "postscale_factor": float(op.get_attr("postscale_factor")),
        **_common(op),
    }


def _filled(op: Any, gradients: tuple[Any, ...]) -> list[Any]:
    """The gradients with zeros for outputs that nothing
    depends on: all ranks reduce the same tensors."""
    pairs = zip(gradients, op.outputs, strict=True)
    return [tf.zeros_like(output) if gradient is None else gradient for gradient, output in pairs]


def _allreduce_gradient(op: Any, gradient: Any) -> Any:
    return ops._allreduce(gradient, **_reduction(op))


def _grouped_allreduce_gradient(op: Any, *gradients: Any) -> list[Any]:
    return ops._grouped_allreduce(_filled(op, gradients), **_reduction(op))


def _own_rows(inputs: list[Any], gradients: list[Any], common: dict[str, Any]) -> list[Any]:
    """This rank's rows of the averaged gradients of gathered tensors."""
    averaged = ops._grouped_allreduce(gradients, op=Average, **common)
    counts = tf.stack([tf.shape(tensor)[0] for tensor in inputs])
    table = ops.allgather(counts[tf.newaxis], **common)  # one row per rank
    index = common["process_set"].own_index()
    starts = tf.unstack(tf.reduce_sum(table[:index], axis=0), num=len(inputs))
    results = []
    for tensor, gradient, start, count in zip(
        inputs, averaged, starts, tf.unstack(counts, num=len(inputs)), strict=True
    ):
        rows = gradient[start : start + count]
        results.append(tf.ensure_shape(rows, tensor.shape))
    return results


def _allgather_gradient(op: Any, gradient: Any) -> Any:
    return _own_rows([op.inputs[0]], [gradient], _common(op))[0]


def _grouped_allgather_gradient(op: Any, *gradients: Any) -> list[Any]:
    return _own_rows(list(op.inputs), _filled(op, gradients), _common(op))


def _at_root(op: Any, gradient: Any) -> Any:
    is_root = tf.equal(place_ops.rank_op(), int(op.get_attr("root_rank")))
    return gradient * tf.cast(is_root, gradient.dtype)


def _broadcast_gradient(op: Any, gradient: Any) -> Any:
    return _at_root(op, ops._allreduce(gradient, op=Average, **_common(op)))


def _grouped_broadcast_gradient(op: Any, *gradients: Any) -> list[Any]:
    averaged = ops._grouped_allreduce(_filled(op, gradients), op=Average, **_common(op))
    return [_at_root(op, gradient) for gradient in averaged]


def _alltoall_gradient(op: Any, gradient: Any, _: Any) -> list[Any]:
    tensor, received = op.inputs[0], op.outputs[1]
    rows, _ = ops.alltoall(gradient, received, **_common(op))
    # Rows beyond the sum of the splits were not sent, so nothing depends on them.
    missing = tf.shape(tensor)[0] - tf.shape(rows)[0]
    padding = tf.zeros(tf.concat([[missing], tf.shape(rows)[1:]], 0), rows.dtype)
    return [tf.ensure_shape(tf.concat([rows, padding], 0), tensor.shape), None]


def _scatter_scale(op: Any, gradient: Any) -> Any:
    factor = float(op.get_attr("prescale_factor")) * float(op.get_attr("postscale_factor"))
    if factor != 1.0:
        gradient = gradient * tf.cast(factor, gradient.dtype)
    if int(op.get_attr("reduce_op")) == Sum:
        gradient = gradient * tf.cast(place_ops.size_op(int(op.get_attr("process_set_id"))), gradient.dtype)
    return gradient


def _reducescatter_gradient(op: Any, gradient: Any) -> Any:
    rows = ops.allgather(_scatter_scale(op, gradient), **_common(op))
    return tf.ensure_shape(rows, op.inputs[0].shape)


def _grouped_reducescatter_gradient(op: Any, *gradients: Any) -> list[Any]:
    scaled = [_scatter_scale(op, gradient) for gradient in _filled(op, gradients)]
    gathered = ops.grouped_allgather(scaled, **_common(op))
    return [tf.ensure_shape(rows, tensor.shape) for rows, tensor in zip(gathered, op.inputs, strict=True)]


def register() -> None:
    """Tells TensorFlow; once per process."""
    for op_type, gradient in {
        "HorovodAllreduce": _allreduce_gradient,
        "HorovodGroupedAllreduce": _grouped_allreduce_gradient,
        "HorovodAllgather": _allgather_gradient,
        "HorovodGroupedAllgather": _grouped_allgather_gradient,
        "HorovodBroadcast": _broadcast_gradient,
        "HorovodGroupedBroadcast": _grouped_broadcast_gradient,
        "HorovodAlltoall": _alltoall_gradient,
        "HorovodReducescatter": _reducescatter_gradient,
        "HorovodGroupedReducescatter": _grouped_reducescatter_gradient,
    }.items():
        tf.RegisterGradient(op_type)(gradient)


register()
