"""A worker of horovod.run(): takes the function, calls it and leaves the result.

From one descriptor and in another; under mpirun, from the launcher and there.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

from horovod._bootstrap.identity import detect
from horovod.runner.function import exchange
from horovod.runner.payload import DESCRIPTORS, read_all, write_all


def main() -> None:
    """An exception of the function ends the process as in any script: traceback and code 1."""
    # Neither for the function's own children, nor for a second time.
    door = os.environ.pop(exchange.VARIABLE, None)
    if door is not None:
        _main_of_mpirun(exchange.FunctionClient(door))
        return
    source, target = map(int, os.environ.pop(DESCRIPTORS).split(","))
    for descriptor in (source, target):
        os.set_inheritable(descriptor, False)
    write_all(target, _result(read_all(source)))


def _main_of_mpirun(client: exchange.FunctionClient) -> None:
    rank = detect().rank
    try:
        client.hand_in(rank, _result(client.fetch()))
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        _end_at_once(error)


def _end_at_once(error: BaseException) -> NoReturn:
    """Without MPI_Finalize, which would wait for the other ranks: mpirun ends them instead."""
    sys.stdout.flush()
    # At once: mpirun marks each piece that it gets.
    sys.stderr.write("".join(traceback.format_exception(error)))
    sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) else 1
    os._exit(code if isinstance(code, int) else 1)


def _result(task: bytes) -> bytes:
    """What the function returns, pickled as the task is."""
    import cloudpickle  # type: ignore[import-untyped]

    # What the caller could import, this process can.
    path, work = cloudpickle.loads(task)
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    function, args, kwargs = cloudpickle.loads(work)
    result = function(*args, **kwargs)
    try:
        pickled: bytes = cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"the function returned a {type(result).__name__}, which cannot be sent back: {error}"
        ) from error
    return pickled


if __name__ == "__main__":
    main()
