"""Calls of the engine from functions that XLA compiles (`jit_compile=True`), on CPUs.

XLA knows nothing of TensorFlow's kernels, so there they are custom calls. A call blocks its thread.
They run one after another in the order of the program: two ranks that wait in different calls would
wait forever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util

from horovod import _core
from horovod.tensorflow.library import register_xla

_TARGET, _END_STEP_TARGET = "horovod_collective", "horovod_end_step"
# Elements that are only moved travel as others of the same size.
_MOVED_AS = {"uint32": "int32", "uint64": "int64"}


class Operation(NamedTuple):
    """What all tensors of a call have in common."""

    op_type: str
    kind: int
    process_set: int
    reduce_op: int = _core.SUM
    root_rank: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] = ()


def compiling() -> bool:
    """Whether the graph that is being built will be compiled by XLA."""
    return not tf.executing_eagerly() and bool(
        control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    )


def refusal(what: str) -> NotImplementedError:
    """The error for what can't be in a compiled function."""
    return NotImplementedError(
        f"{what} does not work in a function that XLA compiles (jit_compile=True), where only the values of "
        "tensors may depend on other ranks; call it outside of the function or leave jit_compile out"
    )


def refuse_if_compiling(op: str) -> None:
    """NotImplementedError in a compiled function, for operations that can't be in one."""
    if compiling():
        raise refusal(op)


def unknown_shape(op: str, tensor: Any) -> ValueError:
    """The error for a tensor whose shape is not known while tracing."""
    return ValueError(
        f"{op} with jit_compile=True needs shapes that are known beforehand, {tensor.name} has {tensor.shape}"
    )


@functools.cache
def _registered() -> bool:
    return register_xla()


def for_gpu(tensors: Sequence[Any] = ()) -> bool:
    """Whether XLA compiles for a GPU: there is one, and the program has placed neither the function nor
    the tensors on a CPU."""
    places = [context.context().device_name or "", *(tensor.device for tensor in tensors)]
    on_cpu = any("CPU" in place.upper() for place in places)
    return not on_cpu and bool(tf.config.list_logical_devices("GPU"))


def call(
    operation: Operation,
    tensors: Sequence[Any],
    name: str,
    gradient: Callable[[Sequence[Any]], Sequence[Any]],
    shapes: Sequence[Sequence[int]] | None = None,
) -> list[Any]:
    """The results, one per tensor and like it, or of other `shapes`.

    `gradient` turns their gradients into those of the inputs.
    """
    if not _registered():
        raise NotImplementedError(
            f"TensorFlow {tf.__version__} lets no function that XLA compiles call Horovod: leave "
            "jit_compile=True out (Keras: compile(jit_compile=False))"
        )
    if for_gpu(tensors):
        raise NotImplementedError(
            f"{operation.op_type}: functions that XLA compiles for a GPU can't call Horovod: leave "
            "jit_compile=True out. Keras compiles by default where there is a GPU: give "
            "jit_compile=False to model.compile(). What is within tf.device('CPU') may be compiled."
        )
    for tensor in tensors:
        if not tensor.shape.is_fully_defined():
            raise unknown_shape(operation.op_type, tensor)
    results = [tensor.shape.as_list() for tensor in tensors] if shapes is None else shapes

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*inputs: Any) -> tuple[Any, Any]:
        outputs = _custom_call(operation, inputs, name, results)
        return tuple(outputs), lambda *outer: tuple(gradient(outer))

    return list(differentiable(*tensors))


def end_step(kind: int) -> None:
    """A step of the training ends after the calls before; see steps.end_step()."""
    # Else there was no such call, as this rank is alone, and this need not be one either.
    if _registered() and not for_gpu() and not tf.config.list_logical_devices("TPU"):
        _in_order([], _END_STEP_TARGET, str(kind), [tf.int32], [[]])


def _custom_call(
    operation: Operation, tensors: Sequence[Any], name: str, shapes: Sequence[Sequence[int]]
) -> list[Any]:
    name = tf.compat.v1.get_default_graph().unique_name(name)
    description = _description(operation, tensors, shapes, name)
    return _in_order(tensors, _TARGET, description, [tensor.dtype for tensor in tensors], shapes)


def _in_order(
    tensors: Sequence[Any],
    target: str,
    description: str,
    dtypes: Sequence[Any],
    shapes: Sequence[Sequence[int]],
) -> list[Any]:
    """The results of a call, which comes after those that were made before in the same graph."""
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    graph = tf.compat.v1.get_default_graph()
    before = getattr(graph, "_horovod_last_call", None)
    if before is None:
        before = tf.zeros([], tf.int32)
    outputs = gen_xla_ops.xla_custom_call_v2(
        operands=[*tensors, before],
        call_target_name=target,
        backend_config=description,
        has_side_effect=True,
        result_dtypes=[*dtypes, tf.int32],
        result_shapes=[*map(tf.TensorShape, shapes), tf.TensorShape([])],
    )
    graph._horovod_last_call = outputs[-1]
    return list(outputs[:-1])


def _description(
    operation: Operation, tensors: Sequence[Any], shapes: Sequence[Sequence[int]], name: str
) -> str:
    """What csrc/adapters/xla/custom_call.cc reads. Lists have their length in front."""
    fields: list[Any] = [*operation[:-1], len(tensors)]
    for tensor, result in zip(tensors, shapes, strict=True):
        dtype = tensor.dtype.name
        shape = tensor.shape.as_list()
        fields += [_core.DTYPES.index(_MOVED_AS.get(dtype, dtype)), len(shape), *shape, len(result), *result]
    return " ".join(map(str, [*fields, len(operation.splits), *operation.splits, name]))
