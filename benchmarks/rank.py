"""One rank of a comparison; started by run.py through horovodrun or mpirun.

python rank.py <store of gloo> <results of rank 0> <seconds per case> <case> ...
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peers import Array, Gloo, OpenMpi, Ours, Work
from plan import GRADIENTS, Case

import horovod.numpy as hvd
from horovod.bench import resnet50
from horovod.bench.measure import Contender, Pace, Summary, burst_for, interleave, memcpy, random_array

_MEMCPY_FROM = 1 << 20  # below, the time goes into meeting each other
# What horovodrun would have set <- what mpirun has set.
_FROM_MPI = {
    "HOROVOD_RANK": "OMPI_COMM_WORLD_RANK",
    "HOROVOD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "HOROVOD_LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def adopt_place_in_mpi() -> bool:
    """Tells our engine its rank if mpirun has started this process; whether it has."""
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return False
    os.environ.update({ours: os.environ[theirs] for ours, theirs in _FROM_MPI.items()})
    os.environ.update(HOROVOD_CROSS_RANK="0", HOROVOD_CROSS_SIZE="1")
    return True


def check(name: str, work: Work, buffer: Array, source: Array) -> None:
    """A contender that is fast but wrong must not win."""
    np.copyto(buffer, source)
    work()
    expected = np.zeros_like(source)
    for rank in range(hvd.size()):
        expected += random_array(source.size, source.dtype, rank)
    if not np.array_equal(buffer, expected):
        raise RuntimeError(f"{name} gives wrong sums of {source.size} {source.dtype}")


def measure(case: Case, contenders: dict[str, Any], seconds: float) -> dict[str, Summary]:
    """The summaries of all contenders that can do this work, and of memcpy for large sizes."""
    dtype = np.dtype(case.dtype)
    shapes = resnet50.gradients()
    gradients = case.work == GRADIENTS
    count = resnet50.count(shapes) if gradients else case.size // dtype.itemsize
    source = random_array(count, dtype, hvd.rank())
    buffer = hvd.empty(count, dtype) if case.shared else np.empty_like(source)
    fair = []
    for name, contender in contenders.items():
        if isinstance(contender, OpenMpi) and (gradients or dtype == np.float16):
            continue  # MPI has no half precision, and no notion of a training step
        work = contender.step(buffer, shapes) if gradients else contender.allreduce(buffer)
        check(name, work, buffer, source)
        fair.append(Contender(name, work, partial(np.copyto, buffer, source)))
    if source.nbytes >= _MEMCPY_FROM:
        fair.append(memcpy(source))
    return interleave(fair, Pace(None, seconds, burst_for(source.nbytes)))


def main(store: str, results: str, seconds: str, *cases: str) -> None:
    """Arguments as in the module's docstring."""
    by_mpi = adopt_place_in_mpi()
    # MPI must come up before other libraries have threads.
    mpi = {"mpi": OpenMpi()} if by_mpi else {}
    hvd.init()
    gloo = Gloo(store)
    contenders = {"ours": Ours(), "gloo": gloo, **mpi}
    found: dict[str, Any] = {}
    for text in cases:
        case = Case(**json.loads(text))
        summaries = measure(case, contenders, float(seconds))
        found[case.key] = {name: vars(summary) for name, summary in summaries.items()}
        if hvd.rank() == 0:
            medians = ", ".join(f"{name} {summary.p50 * 1e6:.0f}" for name, summary in summaries.items())
            print(f"{case.title}: {medians} µs", flush=True)
    if hvd.rank() == 0:
        Path(results).write_text(json.dumps(found), encoding="utf-8")
    hvd.barrier()
    gloo.close()
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
