"""Reductions of what users have: tensors, variables and IndexedSlices, with compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.basics import Adasum, Average, Sum
from horovod.common.collectives import check_adasum, reduce_op
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import ops, place_ops
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.util import device, elastic


def divide_by_size(tensor: Any, process_set: ProcessSet) -> Any:
    """A tensor divided by the number of ranks in a set, which is found at run time in an elastic
    job.

    Integers become floating numbers, as in any division of TensorFlow's: these are parts of sums,
    and truncated parts would add up to something else.
    """
    if tensor.dtype.is_integer:
        tensor = tf.cast(tensor, tf.float32 if tensor.dtype.size <= 2 else tf.float64)
    size = place_ops.size_op(process_set.process_set_id or 0) if elastic() else process_set.size()
    return tensor / tf.cast(size, tensor.dtype)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The ranks' tensors combined element by element with `op` (default: Average).

    tf.IndexedSlices stay sparse: the result has the slices of all ranks, for Average each divided
    by the number of ranks. Slices of integers become floating ones by that; dense integers are
    truncated.
    """
    op = reduce_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(op, prescale_factor, postscale_factor)
        with device(device_sparse):
            return _allreduce_slices(tensor, op, name, process_set, ignore_name_scope)
    if op == Adasum:
        check_adasum(process_set)
    with device(device_dense):
        sent, context = compression.compress(tf.convert_to_tensor(tensor))
        result = ops._allreduce(
            sent, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(result, context)


def _check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    if op not in (Sum, Average):
        raise NotImplementedError(
            "tf.IndexedSlices can be reduced with hvd.Sum and hvd.Average only; use sparse_as_dense=True or "
            "tf.convert_to_tensor()"
        )
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("prescale_factor and postscale_factor do not work with tf.IndexedSlices")


def _allreduce_slices(
    slices: Any, op: int, name: str | None, process_set: ProcessSet, ignore_name_scope: bool
) -> Any:
    values, indices = ops.grouped_allgather(
        [slices.values, slices.indices], name, ignore_name_scope, process_set
    )
    if op == Average:
        values = divide_by_size(values, process_set)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Any:
    """allreduce() of several tensors, which are reduced
    together once all are there on all ranks."""
    if not tensors:
        return tensors
    op = reduce_op(op, average)
    results = list(tensors)
    sparse = [i for i, tensor in enumerate(results) if isinstance(tensor, tf.IndexedSlices)]
    dense = [i for i in range(len(results)) if i not in set(sparse)]
    if sparse:
        _check_sparse(op, prescale_factor, postscale_factor)
        with device(device_sparse):
            for i in sparse:
                part = None if name is None else f"{name}_sparse_{i}"
                results[i] = _allreduce_slices(results[i], op, part, process_set, ignore_name_scope)
    with device(device_dense):
        reduced = allreduce_dense(
            [results[i] for i in dense],
            compression,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
        )
    for i, value in zip(dense, reduced, strict=True):
        results[i] = value
    return results


def allreduce_dense(tensors: Sequence[Any], compression: type[Compressor], **arguments: Any) -> list[Any]:
    """ops._grouped_allreduce() of what compression makes of the tensors."""
    if arguments["op"] == Adasum:
        check_adasum(arguments["process_set"])
    compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    reduced = ops._grouped_allreduce([tensor for tensor, _ in compressed], **arguments)
    pairs = zip(reduced, compressed, strict=True)
    return [compression.decompress(tensor, context) for tensor, (_, context) in pairs]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's share of the rows of the reduced tensor
    (Average or Sum); low ranks get larger shares."""
    with device(device_dense):
        sent, context = compression.compress(tf.convert_to_tensor(tensor))
        result = ops._reducescatter(
            sent, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(result, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """reducescatter() of several tensors together."""
    if not tensors:
        return tensors
    with device(device_dense):
        compressed = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
        results = ops._grouped_reducescatter(
            [tensor for tensor, _ in compressed],
            None,
            op,
            prescale_factor,
            postscale_factor,
            process_set=process_set,
        )
        return [
            compression.decompress(tensor, context)
            for tensor, (_, context) in zip(results, compressed, strict=True)
        ]
