"""One rank of run_checks(): runs the `check_*` functions of a file in order, all ranks in step.

A check that fails on some ranks is reported and the next one is run, unless a rank does not come out of it:
then the job is ended, so that a launch always finishes.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np

import horovod.numpy as hvd

PATIENCE = 10.0  # seconds that a rank with a failed check waits for the others


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def passed_everywhere(name: str, passed: bool) -> bool:
    hvd.init()
    handle = hvd.allreduce_async(np.array([passed], np.int32), name=f"outcome of {name}", op=hvd.Min)
    deadline = time.monotonic() + PATIENCE
    while not passed and not hvd.poll(handle):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name}: another rank did not come out of it")
        time.sleep(0.01)
    return bool(hvd.synchronize(handle)[0])


def run(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:
        print(
            f"FAILED {name} on rank {hvd.rank() if hvd.is_initialized() else '?'}:\n{traceback.format_exc()}"
        )
        return passed_everywhere(name, False)
    return passed_everywhere(name, True)


def main() -> None:
    path, only = Path(sys.argv[1]), sys.argv[2:]
    module = load(path)
    hvd.init()
    checks = {name: check for name, check in vars(module).items() if name.startswith("check_")}
    failed = [name for name, check in checks.items() if (not only or name in only) and not run(name, check)]
    if failed:
        raise SystemExit(f"failed checks: {', '.join(failed)}")
    if hvd.rank() == 0:
        print("all checks passed")


if __name__ == "__main__":
    main()
