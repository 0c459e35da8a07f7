"""Collectives within programs that JAX compiles, on CPUs.

They are calls of csrc/adapters/jax through XLA's foreign-function interface. XLA:CPU runs one at a time and
orders independent ones as it likes, so ranks whose programs differ could wait for each other forever: a
number goes from each call to the next and keeps those of a trace in the order of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from horovod import _core
from horovod.common.collectives import check_adasum
from horovod.common.process_sets import id_of
from horovod.common.session import Place, for_collective
from horovod.jax.arrays import check_dtype, is_traced
from horovod.jax.operation import KINDS, Operation

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # up to JAX 0.5
    from jax.core import get_opaque_trace_state

if jax.__version_info__ < (0, 5, 3):
    raise ImportError(f"horovod.jax needs JAX 0.5.3 or later, this is {jax.__version__}: pip install -U jax")

_TARGET = "horovod_collective"
_FIRST = np.int32(0)  # comes before the first call of a trace

jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(_core.jax_target()), platform="cpu")

_EAGER = get_opaque_trace_state(convention="flax")

used = False  # whether a program with collectives may have been started


def is_tracing(leaves: Sequence[Any]) -> bool:
    """Whether a call on these leaves becomes part of a program, be it one on values that is made there."""
    return is_traced(leaves) or get_opaque_trace_state(convention="flax") != _EAGER


class _Order(threading.local):
    """The number of the last call, for each trace."""

    # Traces that are over can't be told from others. More than these are never being made at once.
    _MOST = 32

    def __init__(self) -> None:
        self._last: list[tuple[Any, Any]] = []

    def get(self) -> Any:
        state = get_opaque_trace_state(convention="flax")
        for known, number in self._last:
            if known == state:
                return number
        return _FIRST

    def set(self, number: Any) -> None:
        # Within jax.checking_leaks() what is kept beyond its trace would be an error.
        if not isinstance(number, jax.core.Tracer) or getattr(jax.config, "jax_check_tracer_leaks", False):
            return
        state = get_opaque_trace_state(convention="flax")
        self._last = [(state, number), *[entry for entry in self._last if entry[0] != state]][: self._MOST]


order = _Order()


def after_both(number: Any, other: Any) -> Any:
    """A number that comes after two."""
    return number if other is _FIRST else other if number is _FIRST else number | other


def call(operation: Operation, number: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The next number and the results of a collective on traced leaves."""
    global used, _with_sets
    for_collective()  # an error if there is no engine
    process_set = id_of(operation.process_set)
    _with_sets = _with_sets or process_set != 0
    if operation.op == _core.ADASUM and operation.kind == _core.ALLREDUCE:
        check_adasum(operation.process_set)
    _check_devices(operation)
    for leaf in leaves:
        check_dtype(leaf, operation.word)
    keeps_shape = operation.kind in (_core.ALLREDUCE, _core.BROADCAST)
    results = [jax.ShapeDtypeStruct(shape, leaf.dtype) for shape, leaf in _shapes(operation, leaves)]
    target = jax.ffi.ffi_call(
        _TARGET,
        [*results, jax.ShapeDtypeStruct((), np.int32)],
        vmap_method=_under_vmap(operation),
        # In place; XLA copies what is needed later.
        input_output_aliases={i: i for i in range(len(leaves))} if keeps_shape else None,
    )
    word = KINDS[operation.kind] if len(leaves) == 1 else f"grouped_{KINDS[operation.kind]}"
    used = True
    *outputs, after = target(
        *leaves,
        number,
        kind=np.int32(operation.kind),
        name=word if operation.name is None else f"{word}.{operation.name}",
        # Numbered when it runs: ranks need not trace equally often.
        unnamed=np.int32(operation.name is None),
        reduce_op=np.int32(operation.op),
        root_rank=np.int32(operation.root_rank),
        prescale=np.float64(operation.prescale),
        postscale=np.float64(operation.postscale),
        process_set=np.int32(process_set),
        ranks=np.int32(0 if keeps_shape else operation.process_set.size() or 0),
        ends_step=np.int32(operation.ends_step),
    )
    return after, outputs


def _under_vmap(operation: Operation) -> str | None:
    """What works on each element by itself works on those of a whole batch. None: an error."""
    if operation.kind not in (_core.ALLREDUCE, _core.BROADCAST):
        return None
    return "sequential" if operation.op == _core.ADASUM else "broadcast_all"


def _shapes(operation: Operation, leaves: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Of the results, for ranks that all have as many rows as this one."""
    if operation.kind in (_core.ALLREDUCE, _core.BROADCAST):
        return [(leaf.shape, leaf) for leaf in leaves]
    if operation.splits is not None:
        raise ValueError(
            f"{operation.word} with splits: within jax.jit every rank must give the same number of rows to "
            "each; call it outside of jit"
        )
    if bad := [leaf for leaf in leaves if leaf.ndim == 0]:
        raise ValueError(
            f"{operation.word} works along the first dimension, got an array of shape {bad[0].shape}"
        )
    size, rank = operation.process_set.size() or 1, operation.process_set.rank() or 0
    counts = [leaf.shape[0] for leaf in leaves]
    if operation.rows is not None:
        counts = list(operation.rows)
    elif operation.kind == _core.ALLGATHER:
        counts = [size * count for count in counts]
    elif operation.kind == _core.REDUCESCATTER:
        counts = [count // size + (rank < count % size) for count in counts]
    return [((count, *leaf.shape[1:]), leaf) for count, leaf in zip(counts, leaves, strict=True)]


def can_call() -> bool:
    """Whether programs that are compiled here can call us, as those of a rank that is alone need not."""
    return jax.default_backend() == "cpu" and jax.local_device_count() == 1


def _check_devices(operation: Operation) -> None:
    if (platform := jax.default_backend()) != "cpu":
        raise ValueError(
            f"{operation.word} within jax.jit works on CPUs only, and JAX computes on {platform} here: call "
            "it outside of jit, or set JAX_PLATFORMS=cpu"
        )
    if (count := jax.local_device_count()) > 1:
        raise ValueError(
            f"{operation.word}: Horovod works with one device in each process, JAX has {count} here: start "
            "one process for each (horovodrun -np N) and take --xla_force_host_platform_device_count out of "
            "XLA_FLAGS, or set jax_num_cpu_devices to 1"
        )


def wait_for_programs() -> None:
    """Returns when all programs that this thread has started so far are over, well or not."""
    if used:
        try:
            jax.effects_barrier()
            _nothing(_FIRST).block_until_ready()
        except Exception:  # whoever uses their results hears of it
            pass


_place: Place | None = None  # of this process, among the ranks for which programs have been made
_with_sets = False  # whether they know process sets, whose numbers may be others next time


def forget_other_worlds() -> None:
    """In a new session: makes JAX compile again what was compiled among other ranks, or at another place.

    Ranks and sizes are part of programs: of shapes, of gradients, and of what users have asked for.
    """
    global _place, _with_sets
    place = for_collective().place
    if _place is not None and (_with_sets or _place != place):
        jax.clear_caches()
    _place, _with_sets = place, False


@jax.jit
def _nothing(number: Any) -> Any:
    return number + 1
