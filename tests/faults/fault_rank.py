"""One rank of an experiment: `fault_rank.py <fault as JSON> <directory for notes>`.

The victim ends itself as the fault says. A survivor notes what it has seen and when, tries some more
operations, and fails with the first error, as a training script would.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle  # type: ignore[import-untyped]  # noqa: F401  # only the operations are to be timed
import numpy as np
from fault_ends import end
from fault_notes import PATIENCE, Notes
from fault_plan import Fault
from util_lag import Lag

import horovod.numpy as hvd
from horovod._bootstrap.rendezvous.client import RendezvousClient

RANK = int(os.environ["HOROVOD_RANK"])
BIG = 64 << 20  # elements: 256 MB
SAMPLES = 64


class Victim:
    """The rank that ends."""

    def __init__(self, fault: Fault, notes: Notes) -> None:
        self._fault, self._notes = fault, notes

    def _end(self, **facts: object) -> None:
        end(self._fault.end, self._notes, **facts)

    def _after_all(self, stage: str) -> None:
        for rank in self._fault.survivors:
            self._notes.wait(f"{stage}-{rank}")

    def run(self) -> None:
        getattr(self, self._fault.moment)()
        raise AssertionError("the victim lives on")

    def before_init(self) -> None:
        self._end()

    def in_init(self) -> None:
        send = RendezvousClient.send

        def end_at_pong(client: RendezvousClient, message: dict[str, Any]) -> None:
            send(client, message)
            if message["type"] == "pong":  # so the server knows of this rank
                self._end()

        with mock.patch.object(RendezvousClient, "send", end_at_pong):
            hvd.init()

    def allreduce(self) -> None:
        hvd.init()
        array = np.ones(BIG, np.float32)
        hvd.barrier()
        handle = hvd.allreduce_async_(array, name="big", op=hvd.Sum)
        samples = array[:: BIG // SAMPLES]
        deadline = time.monotonic() + PATIENCE
        while not (samples != 1).any():
            assert time.monotonic() < deadline, "the operation has not begun"
        self._end(in_the_middle=not hvd.poll(handle))

    def negotiation(self) -> None:
        hvd.init()
        self._after_all("pending")
        self._end()

    def idle(self) -> None:
        hvd.init()
        hvd.allreduce(np.ones(10), name="all is well")
        self._after_all("idle")
        self._end()

    def before_shutdown(self) -> None:
        self.idle()

    def in_shutdown(self) -> None:
        hvd.init()
        self._after_all("pending")
        begun = threading.Event()

        def end_when_begun() -> None:
            begun.wait(PATIENCE)
            self._end()

        helper = threading.Thread(target=end_when_begun)
        helper.start()
        begun.set()
        hvd.shutdown()
        helper.join()


class Survivor:
    """A rank that finds out."""

    def __init__(self, fault: Fault, notes: Notes) -> None:
        self._fault, self._notes = fault, notes
        self._lag = Lag()
        self._first: Exception | None = None
        began = time.monotonic()  # a rank that takes long to start has not been waiting for the victim
        self._seen: dict[str, Any] = {"began": began, "succeeded": [], "later": [], "named_memory": []}

    def run(self) -> None:
        getattr(self, self._fault.moment)()
        died = self._notes.wait("fault")["at"]
        self._notes.write(f"survivor-{RANK}", allowance=self._lag.allowance_since(died), **self._seen)
        for rank in self._fault.survivors:  # when the first one ends, the launcher ends the others soon
            self._notes.wait(f"survivor-{rank}")
        assert self._first is not None
        raise self._first

    def _try(self, name: str, operation: Callable[[], object]) -> bool:
        """Runs an operation; True if it failed."""
        try:
            operation()
        except Exception as error:
            self._seen.update(failed=name, kind=type(error).__name__, text=str(error), when=time.monotonic())
            self._first = error
            return True
        self._seen["succeeded"].append(name)
        return False

    def _until_failure(self) -> None:
        """The victim took part in what it had submitted, so one operation more may succeed, but not two."""
        for number in range(2):
            if self._first is None:
                self._try(f"next {number}", lambda: hvd.allreduce(np.ones(10), name="next"))
        self._later()

    def _later(self) -> None:
        operations: dict[str, Callable[[], object]] = {
            "allreduce": lambda: hvd.allreduce(np.ones(3), name="later"),
            "barrier": hvd.barrier,
            "submit": lambda: hvd.allgather_async(np.ones(3), name="later"),
            "object": lambda: hvd.broadcast_object({}, root_rank=0),
        }
        for name, operation in operations.items():
            begin = time.monotonic()
            try:
                operation()
                text = "no error"
            except hvd.HorovodInternalError as error:
                text = str(error)
            self._seen["later"].append({"name": name, "text": text, "seconds": time.monotonic() - begin})
        hvd.shutdown()

    def _init(self) -> None:
        hvd.init()
        maps = Path("/proc/self/maps").read_text()
        self._seen["named_memory"] = [line for line in maps.splitlines() if "/dev/shm/" in line]

    def before_init(self) -> None:
        self._try("init", hvd.init)

    def in_init(self) -> None:
        # One rank stays away until the victim is gone, so the others can't get through.
        if self._fault.survivors[0] == RANK:
            self._notes.wait("fault")
        self._try("init", hvd.init)

    def allreduce(self) -> None:
        self._init()
        array = np.ones(BIG, np.float32)
        hvd.barrier()
        self._try("big", lambda: hvd.allreduce_(array, name="big", op=hvd.Sum))
        self._until_failure()

    def negotiation(self) -> None:
        self._init()
        handle = hvd.allreduce_async(np.ones(10), name="pending")
        self._notes.write(f"pending-{RANK}")
        self._try("pending", lambda: hvd.synchronize(handle))
        self._later()

    def in_shutdown(self) -> None:
        self.negotiation()

    def _idle(self) -> None:
        self._init()
        hvd.allreduce(np.ones(10), name="all is well")
        self._notes.write(f"idle-{RANK}")
        self._notes.wait("fault")

    def idle(self) -> None:
        self._idle()
        self._until_failure()

    def before_shutdown(self) -> None:
        self._idle()
        self._try("shutdown", hvd.shutdown)
        self._seen["when"] = time.monotonic()
        # Else nothing would end a stopped victim.
        self._first = self._first or hvd.HorovodInternalError("after the shutdown")


def main() -> None:
    fault, notes = Fault.from_json(sys.argv[1]), Notes(Path(sys.argv[2]))
    role = Victim if fault.victim == RANK else Survivor
    role(fault, notes).run()


if __name__ == "__main__":
    main()
