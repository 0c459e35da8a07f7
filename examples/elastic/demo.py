"""Kills and adds ranks of a training before your eyes:

    python examples/elastic/demo.py

It ends with a picture of what happened and "same weights as the undisturbed run": the same training is done
once more with two ranks that nobody disturbs. Gradients are summed as whole numbers, which makes their sum
independent of the number of ranks; so the weights must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import horovod.numpy as hvd
from horovod.elastic.history import read
from horovod.elastic.plot import drawn

STEPS, SHARDS, PAUSE = 400, 12, 0.03
DISCOVERY = Path(__file__).with_name("discover_hosts.sh").read_text()


def worker(steps: int) -> None:
    """One rank: a small network learns to tell whether a point is in a circle."""
    first = np.random.default_rng(0)
    hvd.elastic.ObjectState(hvd.broadcast_object, lambda: 0)  # loads it before the others wait for this rank
    hvd.init()
    state = hvd.elastic.ObjectState(
        hvd.broadcast_object, hvd.rank, weights=[first.normal(size=(3, 24)), first.normal(size=25)], step=0
    )

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < steps:
            # Every rank takes its part of the shards of a step.
            parts = [gradient(state, shard) for shard in range(hvd.rank(), SHARDS, hvd.size())]
            for number in range(2):
                own = sum(np.round(part[number] * 2**40).astype(np.int64) for part in parts)
                whole = np.zeros_like(state.weights[number], np.int64) + own
                total = hvd.allreduce(whole, op=hvd.Sum, name=f"gradient.{number}")
                state.weights[number] = state.weights[number] - 0.5 * total / 2**40 / SHARDS
            state.step += 1
            if hvd.rank() == 0 and state.step % 20 == 0:
                print(f"step {state.step:4} of {steps}, {hvd.size()} ranks {'#' * hvd.size()}", flush=True)
            state.commit()
            time.sleep(PAUSE)

    train(state)
    if hvd.rank() == 0:
        digest = hashlib.sha256(b"".join(weight.tobytes() for weight in state.weights)).hexdigest()
        print(f"weights {digest}", flush=True)


def gradient(state: Any, shard: int) -> list[Any]:
    """Of the loss over one shard of the points of a step."""
    points = np.random.default_rng([state.step, shard]).uniform(-1, 1, size=(32, 2))
    inside = (np.square(points).sum(axis=1) < 0.5).astype(float)
    inputs = np.hstack([points, np.ones((32, 1))])
    hidden = np.hstack([np.tanh(inputs @ state.weights[0]), np.ones((32, 1))])
    error = (1 / (1 + np.exp(-hidden @ state.weights[1])) - inside) / 32
    behind = np.outer(error, state.weights[1][:-1]) * (1 - hidden[:, :-1] ** 2)
    return [inputs.T @ behind, hidden.T @ error]


class Demo:
    """A job whose hosts and processes are changed while it runs."""

    def __init__(self, directory: Path, events: Path, steps: int) -> None:
        events.unlink(missing_ok=True)
        self.events = events
        self.script = directory / "discover_hosts.sh"
        self.set_hosts("localhost:2")
        self.steps = steps
        self.planned = [
            (0.15, self.add),
            (0.45, lambda: self.kill(-1)),
            (0.65, lambda: self.kill(0)),
            (0.85, self.take_away),
        ]

    def set_hosts(self, *hosts: str) -> None:
        """Edits the discovery script."""
        text = DISCOVERY.partition("# Hosts:\n")[0] + "# Hosts:\n" + "\n".join(hosts) + "\n"
        new = self.script.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o755)
        new.rename(self.script)

    def members(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.events.read_text().splitlines()]
        found: list[dict[str, Any]] = [line for line in lines if line["event"] == "generation"][-1]["members"]
        return found

    def kill(self, number: int) -> None:
        member = self.members()[number]
        say(f"killing rank {member['rank']}, {member['host']}[{member['slot']}]: kill -9 {member['pid']}")
        os.kill(member["pid"], signal.SIGKILL)

    def act(self, share: float) -> None:
        """Does what is due when this share of the steps is done."""
        while self.planned and share >= self.planned[0][0]:
            self.planned.pop(0)[1]()

    def add(self) -> None:
        say("adding two slots of 127.0.0.1 to the discovery script")
        self.set_hosts("localhost:2", "127.0.0.1:2")

    def take_away(self) -> None:
        say("taking localhost out of the discovery script")
        self.set_hosts("127.0.0.1:2")

    def run(self) -> str:
        """The digest of the weights."""
        command = [
            *(sys.executable, "-m", "horovod.runner.launch", "-np", "2", "--min-np", "1", "--max-np", "4"),
            *("--host-discovery-script", str(self.script), "--failures-before-blacklist", "100"),
            *("--events-file", str(self.events), sys.executable, __file__, "--worker"),
        ]
        return finished([*command, "--steps", str(self.steps)], self.steps, self.act)


def finished(command: list[str], steps: int, act: Callable[[float], None]) -> str:
    """Runs a job, shows what it says, and returns the digest that it ends with."""
    digest = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            text = line.partition("<stdout>:")[2] or line
            if text.startswith("weights "):
                digest = text.split()[1]
                continue
            print("  " + text, end="", flush=True)
            if text.startswith("step "):
                act(int(text.split()[1]) / steps)
    if job.returncode != 0 or not digest:
        sys.exit(f"the job ended with code {job.returncode}")
    return digest


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--worker", action="store_true", help="be one of the ranks")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the training")
    parser.add_argument("--picture", type=Path, default=Path("elastic.svg"), help="where to draw it")
    options = parser.parse_args()
    if options.worker:
        worker(options.steps)
        return
    with tempfile.TemporaryDirectory(prefix="hvd-demo-") as name:
        say("a training of two ranks that will be disturbed")
        events = options.picture.with_suffix(".jsonl")
        disturbed = Demo(Path(name), events, options.steps).run()
        options.picture.write_text(drawn(read(events.read_text())))
    say("the same training, undisturbed")
    plain = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, __file__, "--worker"]
    undisturbed = finished([*plain, "--steps", str(options.steps)], options.steps, lambda share: None)
    say(f"a picture of the job is in {options.picture}")
    if disturbed != undisturbed:
        sys.exit(f"OTHER weights than the undisturbed run: {disturbed[:12]} and {undisturbed[:12]}")
    print("same weights as the undisturbed run", flush=True)


if __name__ == "__main__":
    main()
