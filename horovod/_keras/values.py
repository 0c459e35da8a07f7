"""Collectives on values: numbers, arrays and tensors outside of a model."""

from __future__ import annotations

from typing import Any

from horovod._keras import flavours
from horovod.common.basics import Average


def _tensor(keras: Any, value: Any) -> Any:
    if flavours.is_legacy(keras):
        import tensorflow as tf

        return tf.convert_to_tensor(value)
    return keras.ops.convert_to_tensor(value)


def _result(keras: Any, tensor: Any) -> Any:
    """The value itself; if legacy Keras has built a TF1 graph, what running it gives."""
    if not flavours.is_legacy(keras) or hasattr(tensor, "numpy"):
        return tensor
    return flavours.session_of_legacy_keras().run(tensor)


def allreduce(keras: Any, value: Any, **options: Any) -> Any:
    """The ranks' values combined element by element."""
    return _result(keras, flavours.collectives_of(keras).allreduce(_tensor(keras, value), **options))


def allgather(keras: Any, value: Any, name: str | None) -> Any:
    """The ranks' values one after another along the first dimension."""
    return _result(keras, flavours.collectives_of(keras).allgather(_tensor(keras, value), name=name))


def broadcast(keras: Any, value: Any, root_rank: int, name: str | None) -> Any:
    """The root's value."""
    return _result(
        keras, flavours.collectives_of(keras).broadcast(_tensor(keras, value), root_rank, name=name)
    )


def reducescatter(keras: Any, value: Any, name: str | None, op: int = Average) -> Any:
    """This rank's rows of the reduced value."""
    return _result(
        keras, flavours.collectives_of(keras).reducescatter(_tensor(keras, value), op=op, name=name)
    )
