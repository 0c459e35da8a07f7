"""Runs an elastic training under the real horovodrun and reads what its processes have noted."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner_util import Launcher
from util_paths import ROOT, SUPPORT

HERE = Path(__file__).parent
FRAMEWORKS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax"}
LIMIT = 200.0  # seconds for any scenario: four processes import TensorFlow on two busy cores

A, B = "localhost", "127.0.0.1"  # one machine that plays two

Note = dict[str, Any]


class Training:
    """A job in a directory of its own. `hosts`: what the discovery script prints at first."""

    def __init__(
        self,
        directory: Path,
        framework: str,
        *flags: str,
        hosts: str | None = None,
        script: str | None = None,
        environment: Mapping[str, str] | None = None,
        **plan: Any,
    ) -> None:
        self.directory = directory
        self.framework = framework
        self.plan = {**plan, "directory": str(directory)}
        (directory / "plan.json").write_text(json.dumps(self.plan))
        words = [*flags, "--events-file", str(directory / "events"), "--verbose"]
        if hosts is not None:
            self.set_hosts(hosts)
            command = directory / "discover.sh"
            command.write_text(script or f"#!/bin/sh\ncat {directory}/hosts\n")
            command.chmod(0o755)
            words += ["--host-discovery-script", str(command)]
        program = HERE / f"program_{framework}.py"
        self.launcher = Launcher(
            *words,
            sys.executable,
            str(program),
            str(directory / "plan.json"),
            cwd=directory,
            env={
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "-1",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **(environment or {}),
            },
        )
        self.output = ""
        self.over = 0.0  # when it had ended

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.launcher.destroy()

    def set_hosts(self, hosts: str) -> None:
        """What the discovery script prints from now on."""
        new = self.directory / "hosts.outside"
        new.write_text(hosts)
        new.rename(self.directory / "hosts")

    def finish(self, seconds: float = LIMIT) -> int:
        """Waits for the end, and returns the exit code. Nothing may be left of the job."""
        result = self.launcher.finish_all(seconds, self.notes)
        self.over = time.time()
        self.output = result.stdout + result.stderr
        return result.returncode

    def succeed(self, seconds: float = LIMIT) -> None:
        """Waits for the end, which must be a good one, and checks what is true of every job."""
        assert self.finish(seconds) == 0
        self.check()

    def notes(self, kind: str | None = None, **values: Any) -> list[Note]:
        """What the processes have noted so far; see scenario.py."""
        return _read(self.directory / "notes", "kind", kind, values)

    def events(self, kind: str | None = None, **values: Any) -> list[Note]:
        """The lines of the events file."""
        return _read(self.directory / "events", "event", kind, values)

    def wait_for(self, kind: str, count: int = 1, seconds: float = LIMIT, **values: Any) -> list[Note]:
        """Waits until so many notes of a kind are there."""
        deadline = time.monotonic() + seconds
        while len(found := self.notes(kind, **values)) < count:
            assert time.monotonic() < deadline and self.launcher.process.poll() is None, self.notes()
            time.sleep(0.02)
        return found

    def epochs(self, *names: str) -> list[tuple[Any, ...]]:
        """These values of each epoch, in order."""
        return [tuple(note[name] for name in names) for note in self.notes("epoch")]

    def sizes(self) -> list[int]:
        return [note["size"] for note in self.notes("epoch")]

    def ended(self, name: str) -> str:
        """How the last process of a slot, as `localhost[0]`, has ended."""
        found = re.findall(rf"^horovodrun: {re.escape(name)} ((?:exited|was) .*)$", self.output, re.MULTILINE)
        assert found, f"nothing is known of the end of {name}"
        return str(found[-1])

    def check(self) -> None:
        """What is true of every training that ends well."""
        by_world: dict[int, list[Note]] = defaultdict(list)
        for note in self.notes("begin"):
            by_world[note["generation"]].append(note)
        for generation, notes in by_world.items():
            assert len({note["digest"] for note in notes}) == 1, (generation, notes)
            if notes[0]["sync"]:
                assert len({note["local"] for note in notes}) == 1, (generation, notes)
        decided = [event["generation"] for event in self.events("generation")]
        assert decided == list(range(1, len(decided) + 1))
        assert all(event["reason"] for event in self.events("generation"))
        assert set(by_world) <= set(decided)
        ends = self.notes("end")
        assert len(ends) == ends[0]["size"], "all members of the last world come to the end"
        if self.framework == "tensorflow":
            assert all(note["traces"] <= 1 for note in ends), "the step is traced once in each process"
        if self.framework == "jax":
            assert all(note["traces"] <= note["worlds"] for note in ends), "once for each world"
        if self.framework == "keras" and "until_size" not in self.plan:
            assert {note["epochs"] for note in ends} == {self.plan.get("epochs", 3)}

    def check_nothing_was_repeated(self) -> None:
        """Each batch and each epoch was committed once."""
        for note in self.notes("epoch"):
            assert note["commits"] == 11 * note["epoch"] + 10, note


def _read(path: Path, key: str, kind: str | None, values: Mapping[str, Any]) -> list[Note]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [
        line
        for line in lines
        if (kind is None or line[key] == kind) and all(line.get(k) == v for k, v in values.items())
    ]
