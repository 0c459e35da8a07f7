"""Runs horovodrun on host1 of the fixture."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cluster_hosts import Hosts
from util_launch import Outcome, UnfinishedError
from util_paths import ROOT

RANK = Path(__file__).with_name("cluster_rank.py")
ENOUGH = 90.0  # seconds for any job, also on a busy machine


class ClusterJob:
    """A running horovodrun; its pid is that of ``process``."""

    def __init__(
        self, hosts: Hosts, *argv: str | Path, env: dict[str, str] | None = None, on: int = 1
    ) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            hosts.words(on, sys.executable, "-m", "horovod.runner.launch", *argv),
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines_until(self, count: int, text: str) -> list[str]:
        """Lines of stdout until ``text`` has appeared ``count`` times."""
        lines: list[str] = []
        for line in self._lines():
            lines.append(line)
            count -= text in line
            if count == 0:
                return lines
        self.finish()
        raise AssertionError(f"{text!r} did not appear in {lines}")

    def finish(self, seconds: float = ENOUGH) -> subprocess.CompletedProcess[str]:
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise UnfinishedError(["horovodrun"], seconds, f"{out}\n{err}") from None
        print(out, err, sep="\n--- stderr ---\n")
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)

    def end(self, seconds: float = ENOUGH) -> Outcome:
        """All of its output in one."""
        done = self.finish(seconds)
        return Outcome(done.returncode, done.stdout + done.stderr)

    def _lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        yield from iter(self.process.stdout.readline, "")


def horovodrun(
    hosts: Hosts, *argv: str | Path, env: dict[str, str] | None = None, seconds: float = ENOUGH
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return ClusterJob(hosts, *argv, env=env).finish(seconds)
