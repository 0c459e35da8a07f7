"""A worker of horovod.run(): takes the function from one descriptor, leaves its result in the other."""

from __future__ import annotations

import os
import sys

from horovod.runner.taskfiles import DESCRIPTORS, read_all, write_all


def main() -> None:
    """An exception of the function ends the process as in any script: with its traceback, and code 1."""
    # Neither for the function's own children, nor for a second time.
    source, target = map(int, os.environ.pop(DESCRIPTORS).split(","))
    for descriptor in (source, target):
        os.set_inheritable(descriptor, False)
    import cloudpickle  # type: ignore[import-untyped]

    # What the caller could import, this process can.
    path, work = cloudpickle.loads(read_all(source))
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    function, args, kwargs = cloudpickle.loads(work)
    result = function(*args, **kwargs)
    try:
        pickled = cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"the function returned a {type(result).__name__}, which cannot be sent back: {error}"
        ) from error
    write_all(target, pickled)


if __name__ == "__main__":
    main()
