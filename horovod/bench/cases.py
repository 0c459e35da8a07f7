"""The benchmarks themselves. All ranks run them alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import horovod.numpy as hvd
from horovod.bench import resnet50
from horovod.bench.measure import Contender, Pace, burst_for, interleave, memcpy, random_array
from horovod.bench.options import Options
from horovod.bench.results import Row

_LATENCY_BURST = 50


def run(benchmark: str, options: Options) -> Iterator[Row]:
    """The rows of one of options.BENCHMARKS, each as soon as it is measured."""
    if benchmark == "latency":
        yield from _latency(options)
    elif benchmark == "grads":
        yield from _gradients(options)
    else:
        for size in options.sizes:
            yield _BY_SIZE[benchmark](size, options)


def _pace(options: Options, burst: int) -> Pace:
    return Pace(options.iterations, options.seconds, burst)


def _with_memcpy(operation: str, contender: Contender, copy: Contender, size: int, options: Options) -> Row:
    measured = interleave([contender, copy], _pace(options, burst_for(size)))
    dtype = options.dtype.name
    return Row(operation, operation, hvd.size(), dtype, size, 1, measured[operation], measured["memcpy"])


def _allreduce(size: int, options: Options) -> Row:
    source = random_array(max(1, size // options.dtype.itemsize), options.dtype, hvd.rank())
    buffer = np.empty_like(source)
    contender = Contender(
        "allreduce",
        lambda: hvd.allreduce_(buffer, name="bench.allreduce", op=hvd.Sum),
        partial(np.copyto, buffer, source),
    )
    return _with_memcpy("allreduce", contender, memcpy(source), source.nbytes, options)


def _broadcast(size: int, options: Options) -> Row:
    buffer = random_array(max(1, size // options.dtype.itemsize), options.dtype, hvd.rank())
    contender = Contender("broadcast", lambda: hvd.broadcast_(buffer, 0, name="bench.broadcast"))
    return _with_memcpy("broadcast", contender, memcpy(buffer), buffer.nbytes, options)


def _allgather(size: int, options: Options) -> Row:
    part = random_array(max(1, size // options.dtype.itemsize // hvd.size()), options.dtype, hvd.rank())
    whole = np.tile(part, hvd.size())
    contender = Contender("allgather", lambda: hvd.allgather(part, name="bench.allgather"))
    return _with_memcpy("allgather", contender, memcpy(whole), whole.nbytes, options)


_BY_SIZE: dict[str, Callable[[int, Options], Row]] = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "broadcast": _broadcast,
}


def _latency(options: Options) -> Iterator[Row]:
    number = np.zeros(1, np.float32)
    contenders = [
        Contender("allreduce", lambda: hvd.allreduce_(number, name="bench.allreduce", op=hvd.Sum)),
        Contender("allgather", lambda: hvd.allgather(number, name="bench.allgather")),
        Contender("broadcast", lambda: hvd.broadcast_(number, 0, name="bench.broadcast")),
        Contender("barrier", hvd.barrier),
    ]
    for name, summary in interleave(contenders, _pace(options, _LATENCY_BURST)).items():
        size = 0 if name == "barrier" else number.nbytes
        yield Row("latency", name, hvd.size(), "float32", size, 1 if size else 0, summary)


def _gradients(options: Options) -> Iterator[Row]:
    """One step: all gradients submitted one by one as a backward pass would, then waited for."""
    shapes = resnet50.gradients()
    source = random_array(resnet50.count(shapes), options.dtype, hvd.rank())
    buffer = np.empty_like(source)
    named = resnet50.views(buffer, shapes)

    def step() -> None:
        handles = [hvd.allreduce_async_(gradient, name=name, op=hvd.Sum) for name, gradient in named]
        for handle in handles:
            hvd.synchronize(handle)

    contenders = [Contender("allreduce", step, partial(np.copyto, buffer, source)), memcpy(source)]
    measured = interleave(contenders, _pace(options, 1))
    yield Row(
        "grads",
        "allreduce",
        hvd.size(),
        options.dtype.name,
        source.nbytes,
        len(named),
        measured["allreduce"],
        measured["memcpy"],
    )
