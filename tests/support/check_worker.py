"""One rank of a launch of checks: `check_worker.py DIRECTORY`. All ranks run the checks of its plan in step.

Each rank writes what becomes of each check into a file of its own there (check_launch.py reads them). A check
that fails on some ranks does not keep the next one from being run, unless a rank does not come out of it:
then the job is ended, so that a launch always finishes.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import signal
import sys
import time
import traceback
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import numpy as np

import horovod.numpy as hvd

PATIENCE = 10.0  # seconds that a rank with a failed check waits for the others


def load(path: Path) -> ModuleType:
    """Checks import helpers that stand beside them; also other checks, which are then the same module."""
    if str(path.parent) not in sys.path:
        sys.path.insert(1, str(path.parent))
    if path.stem in sys.modules:
        module = sys.modules[path.stem]
        assert module.__file__ == str(path), f"{path} and {module.__file__} can't be in one launch"
        return module
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


class Notes:
    """What this rank has to say, a line of JSON for each beginning and end."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, check: str, state: str, **more: Any) -> None:
        print(json.dumps({"check": check, "state": state, **more}), file=self._file, flush=True)


def run(identity: str, check: Any, case: str | None, notes: Notes) -> None:
    """Runs one, and waits for the other ranks."""
    notes.write(identity, "begun")
    began = time.monotonic()
    state, text = "passed", ""
    try:
        check() if case is None else check(case)
    except unittest.SkipTest as reason:
        state, text = "skipped", str(reason)
    except Exception as error:
        assert error.__traceback__ is not None
        frames = error.__traceback__.tb_next or error.__traceback__  # without this function
        state, text = "failed", "".join(traceback.format_exception(type(error), error, frames))
    notes.write(identity, state, text=text, seconds=time.monotonic() - began)
    wait_for_others(identity, state != "failed")


def wait_for_others(identity: str, well: bool) -> None:
    hvd.init()
    handle = hvd.allreduce_async(np.array([well], np.int32), name=f"outcome of {identity}", op=hvd.Min)
    deadline = time.monotonic() + PATIENCE
    while not well and not hvd.poll(handle):
        if time.monotonic() > deadline:
            raise SystemExit(f"{identity}: another rank did not come out of it")
        time.sleep(0.01)
    hvd.synchronize(handle)


def main() -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, chain=True)  # where it was when its time was up
    directory = Path(sys.argv[1])
    plan = json.loads((directory / "plan.json").read_text())
    if plan["before"]:
        load(Path(plan["before"]))
    modules = {file: load(Path(file)) for file, _, _ in plan["checks"]}
    hvd.init()
    with open(directory / f"rank-{hvd.rank()}", "w") as file:
        notes = Notes(file)
        for path, name, case in plan["checks"]:
            identity = f"{Path(path).stem}.{name}" + (f"[{case}]" if case is not None else "")
            run(identity, getattr(modules[path], name), case, notes)


if __name__ == "__main__":
    main()
