"""Kills random ranks of a training at random moments and compares its bits with an undisturbed run:

    python tests/elastic/soak_elastic.py --kills 1000
    python tests/elastic/soak_elastic.py --kills 50 --least 1     recoveries without waiting for new processes
    python tests/elastic/soak_elastic.py --kills 50 --hosts       on two hosts (network namespaces; as root)

Prints how long recoveries took and what survivors hold on to.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent / "cluster")]

from cluster_hosts import Hosts  # noqa: E402
from cluster_job import ClusterJob  # noqa: E402
from runner_util import Launcher  # noqa: E402
from util_paths import ROOT  # noqa: E402

Note = dict[str, Any]


@dataclass
class Soaked:
    """What a job has noted, and how long its recoveries took: from a kill until the next world stood."""

    notes: list[Note]
    recoveries: list[float]

    def of(self, kind: str) -> list[Note]:
        return [note for note in self.notes if note["kind"] == kind]

    def growth(self, what: str) -> float:
        """By how much the process that lived through all worlds holds more than in its tenth."""
        late = max(self.of("end"), key=lambda note: int(note["worlds"]))
        early = next(note for note in self.of("held") if (note["pid"], note["worlds"]) == (late["pid"], 10))
        return float(late[what] - early[what])


def soaked(
    directory: Path, steps: int, kills: int, seconds: float, least: int = 4, hosts: Hosts | None = None
) -> Soaked:
    """A job of `least` to four ranks that ended well. AssertionError if it did not."""
    (directory / "holders").mkdir(parents=True)
    (directory / "killed").touch()
    words = [
        *("-np", "4", "--min-np", str(least), "--max-np", "4", "--failures-before-blacklist", "100000"),
        *("-H", "localhost:2,127.0.0.1:2" if hosts is None else "host1:2,host2:2"),
        *("--events-file", str(directory / "events")),
        *(sys.executable, str(HERE / "program_soak.py"), str(directory), str(steps), str(kills)),
    ]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if hosts is not None:
        result = ClusterJob(hosts, *words, env=environment).finish(seconds)
    else:
        launcher = Launcher(*words, env=environment)
        try:
            result = launcher.finish(seconds)
        finally:
            for process in launcher.family():
                process.kill()
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    notes = _lines(directory / "notes")
    ready = [event["time"] for event in _lines(directory / "events") if event["event"] == "ready"]
    times = [note["time"] for note in notes if note["kind"] == "kill"]
    return Soaked(notes, [min(at for at in ready if at > kill) - kill for kill in times if kill < ready[-1]])


def _lines(path: Path) -> list[Note]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20000.0)
    parser.add_argument("--least", type=int, default=4, help="go on without those that were killed")
    parser.add_argument("--hosts", action="store_true", help="on two hosts that are network namespaces")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hvd-soak-") as name, contextlib.ExitStack() as stack:
        hosts = Hosts(2, Path(name)) if options.hosts else None
        if hosts is not None:
            stack.callback(hosts.close)
        calm = soaked(Path(name) / "calm", options.steps, 0, options.seconds, hosts=hosts)
        began = time.monotonic()
        stormy = soaked(
            Path(name) / "stormy", options.steps, options.kills, options.seconds, options.least, hosts
        )
        took = time.monotonic() - began
    seconds = stormy.recoveries
    print(f"{len(stormy.of('kill'))} kills in {took:.0f} s, {options.steps} steps")
    middle, worst = statistics.median(seconds), max(seconds)
    print(f"until the next world stood: {middle:.3f} s (median), {worst:.3f} s (worst)")
    for what in ("descriptors", "threads", "mebibytes"):
        print(f"{what} of survivors: {stormy.growth(what):+.1f} since their tenth world")
    if options.least < 4:
        return  # sums of other numbers of ranks are other sums
    expected = {note["digest"] for note in calm.of("end")}
    got = {note["digest"] for note in stormy.of("end")}
    if len(expected) != 1 or got != expected:
        sys.exit(f"other weights than the undisturbed run: {got} instead of {expected}")
    print("same weights as the undisturbed run")


if __name__ == "__main__":
    main()
