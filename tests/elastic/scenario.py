"""What the three training programs have in common: a plan of faults and changes of hosts, and notes.

The plan is a file of JSON: `epochs`, `batches`, `changes` (by epoch: what the discovery script prints from
then on), `faults` (who, where and how, see Fault), `directory`. Notes are lines of JSON in `directory`/notes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from horovod.common import basics, elastic_world
from horovod.common.elastic import State

NOTICE_SECONDS = 60.0


class LeaveFunction(Exception):
    """A fault: the training function returns as if it were complete."""


class Scenario:
    """One process's view of the plan."""

    def __init__(self) -> None:
        self.plan: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
        self.directory = Path(self.plan["directory"])
        self.start_rank = int(os.environ["HOROVOD_START_RANK"])
        self.epochs: int = self.plan.get("epochs", 3)
        self.batches: int = self.plan.get("batches", 10)
        self._grown = False
        self.note("started", host=os.environ["HOROVOD_HOSTNAME"], at=_started())
        self._plan_fault_in_init()

    def note(self, kind: str, **what: Any) -> None:
        """Adds a line; one write, so that those of several processes don't mix."""
        place = elastic_world.assignment()
        line = {
            "kind": kind,
            "time": time.time(),
            "pid": os.getpid(),
            "start_rank": self.start_rank,
            "generation": None if place is None else place.generation,
            "rank": None if place is None else place.rank,
            "size": None if place is None else place.size,
            **what,
        }
        with open(self.directory / "notes", "ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def begin(self, state: Any, shared: Iterable[Any], local: Iterable[Any] = ()) -> None:
        """At the start of the training function, in each world.

        `local`: what only a sync() makes the same, such as running means.
        """
        state.rendezvous += 1
        attributes = (state.epoch, state.batch, state.commits, state.rendezvous)
        place = elastic_world.assignment()
        self.note(
            "begin",
            digest=_digest(shared, attributes),
            local=_digest(local, attributes),
            epoch=state.epoch,
            batch=state.batch,
            commits=state.commits,
            local_rank=basics.local_rank(),
            sync=None if place is None else place.sync,
            source=None if place is None else place.source,
        )

    def before_batch(self, state: Any, batch: int | None = None) -> None:
        """Carries out a fault that is planned for this batch."""
        at = state.batch if batch is None else batch
        for number, fault in enumerate(self.plan.get("faults", [])):
            if fault.get("where", "batch") == "batch" and (fault["epoch"], fault["batch"]) == (
                state.epoch,
                at,
            ):
                self._strike(number, fault)

    def complete(self, state: Any) -> bool:
        """Whether enough epochs are done; with `until_size`, one in a world that is so large again."""
        return bool(state.epoch >= self.epochs or self._grown)

    def in_sync(self) -> None:
        """Within sync(): part of the state is there."""
        for number, fault in enumerate(self.plan.get("faults", [])):
            if fault.get("where") == "sync" and self._generation() >= fault.get("generation", 2):
                self._strike(number, fault)

    def after_epoch(self, state: Any, **more: Any) -> None:
        """At the end of an epoch, before `state.epoch` is counted up: notes it and changes hosts."""
        self._grown = state.rendezvous > 1 and basics.size() == self.plan.get("until_size")
        if basics.rank() == 0:
            self.note(
                "epoch",
                epoch=state.epoch,
                batch=state.batch,
                commits=state.commits,
                hostname=os.environ["HOROVOD_HOSTNAME"],
                rendezvous=state.rendezvous,
                **more,
            )
            pause = self.plan.get("epoch_seconds")
            if pause:
                time.sleep(pause)
            change = self.plan.get("changes", {}).get(str(state.epoch + 1))
            if change is not None:
                self._change_hosts(state, change)

    def _change_hosts(self, state: State, change: str) -> None:
        new = self.directory / "hosts.new"
        new.write_text(change)
        new.rename(self.directory / "hosts")
        deadline = time.monotonic() + NOTICE_SECONDS
        while state._host_messages.empty():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no notice within {NOTICE_SECONDS:g} s that hosts have changed")
            time.sleep(0.02)

    def _generation(self) -> int:
        place = elastic_world.assignment()
        return 0 if place is None else place.generation

    def _strike(self, number: int, fault: dict[str, Any]) -> None:
        if self.start_rank not in fault["start_ranks"]:
            return
        with contextlib.suppress(FileExistsError):  # once for each process that it is planned for
            os.close(os.open(self.directory / f"fault-{number}-{self.start_rank}", os.O_CREAT | os.O_EXCL))
            how = fault.get("how", "kill")
            self.note("fault", how=how)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif how == "raise":
                raise RuntimeError("a planned failure")
            elif how == "return":
                raise LeaveFunction

    def _plan_fault_in_init(self) -> None:
        """Within init(): the process dies while the next world is being built."""
        planned = [
            (number, fault)
            for number, fault in enumerate(self.plan.get("faults", []))
            if fault.get("where") == "init" and self.start_rank in fault["start_ranks"]
        ]
        if not planned:
            return
        from horovod._bootstrap.world.builder import Builder

        meet = Builder._meet_on_host

        def dying(builder: Builder, *args: Any, **kwargs: Any) -> Any:
            self._worlds = getattr(self, "_worlds", 0) + 1
            for number, fault in planned:
                if self._worlds >= fault.get("generation", 2):
                    self._strike(number, fault)
            return meet(builder, *args, **kwargs)

        Builder._meet_on_host = dying  # type: ignore[method-assign, assignment]


def _started() -> float:
    """When this process was started, which its imports are long after."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


def _digest(arrays: Iterable[Any], attributes: tuple[int, ...]) -> str:
    digest = hashlib.sha256(repr(attributes).encode())
    for array in arrays:
        value = np.ascontiguousarray(array)
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


def faulty(base: type[Any], scenario: Scenario) -> Any:
    """A class of states that fails within sync() as planned."""

    class Faulty(base):  # type: ignore[misc]
        def _sync_attributes(self) -> None:
            scenario.in_sync()
            super()._sync_attributes()

    return Faulty


def finished(scenario: Scenario, train: Callable[[], Any], **more: Any) -> None:
    """Runs the whole of it and notes the end."""
    try:
        train()
    except LeaveFunction:
        scenario.note("left")
        return
    scenario.note("end", host=socket.gethostname(), **{name: value() for name, value in more.items()})
