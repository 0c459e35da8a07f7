"""Runs program_steps.py under horovodrun, here or on the hosts of tests/cluster."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster_hosts import Hosts
from util_paths import ROOT

PROGRAM = Path(__file__).with_name("program_steps.py")
PATIENCE = 120.0
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}

Note = dict[str, Any]


class StepsJob:
    """A job of so many steps as come until end() is called."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        on: Hosts | None = None,
        framework: str = "numpy",
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        self.directory = directory
        self._notes = directory / "notes"
        self._events = directory / "events"
        self._output = directory / "output"
        words = [sys.executable, "-m", "horovod.runner.launch", *flags, "--events-file", str(self._events)]
        words += [sys.executable, str(PROGRAM), str(directory / "stop"), str(self._notes), framework]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                words if on is None else on.words(1, *words),
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **QUIET, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output if stdout is None else stdout,
                stderr=output,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def notes(self, kind: str = "world", **values: Any) -> list[Note]:
        return [each for each in _lines(self._notes) if _has(each, {"kind": kind, **values})]

    def events(self, kind: str, **values: Any) -> list[Note]:
        return [each for each in _lines(self._events) if _has(each, {"event": kind, **values})]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None and time.monotonic() < deadline, (
                f"{what}\n{self.output}\n{_lines(self._notes)}\n{_lines(self._events)}"
            )
            time.sleep(0.02)

    def world(self, size: int, generation: int | None = None) -> list[Note]:
        """Waits for the newest world to be of that size and at work; its members by rank."""

        def newest() -> list[Note]:
            notes = self.notes()
            number = max((each["generation"] for each in notes), default=0)
            return [each for each in notes if each["generation"] == number]

        def stands() -> bool:
            found = newest()
            return len(found) == size == found[0]["size"] and generation in (None, found[0]["generation"])

        self.until(lambda: bool(newest()) and stands(), f"a world of {size}")
        return sorted(newest(), key=lambda note: int(note["rank"]))

    def under_way(self, size: int) -> list[Note]:
        """The same of the first world, which has something to lose: all have committed a step."""
        members = self.world(size)
        self.until(lambda: len(self.notes("committed")) == size, "a commit")
        return members

    def end(self) -> list[Note]:
        """Lets it end well; the last words of all members."""
        (self.directory / "stop").touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        assert self.process.returncode == 0, f"{self.output}\n{_lines(self._notes)}\n{_lines(self._events)}"
        for note in [*self.notes(), *self.notes("end")]:
            assert note["weight"] == -note["step"], f"steps were lost, or done twice: {note}"
        return self.notes("end")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
            self.process.wait()
        print(self.output)
        print(*_lines(self._events), sep="\n")
        print(*_lines(self._notes), sep="\n")


def _lines(path: Path) -> list[Note]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _has(note: Note, values: Mapping[str, Any]) -> bool:
    return all(note.get(name) == value for name, value in values.items())
