"""Faults as data: which rank of which world ends how, and at what moment. Pure; also read by the ranks."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass

TRANSPORTS = ("shm", "tcp")
SIZES = (2, 3, 4)
POSITIONS = ("first", "middle", "last")
MOMENTS = (
    "allreduce",  # in the middle of one of 256 MB
    "negotiation",  # the others wait for an operation that the victim never submits
    "idle",  # between two operations; the next one raises
    "before_init",
    "in_init",  # it has joined and waits for another rank
    "before_shutdown",  # the others call hvd.shutdown() after that
    "in_shutdown",  # while it shuts down itself and the others wait for an operation
)
ENDS = ("SIGKILL", "SIGSTOP", "exception", "exit0", "SIGSEGV")


@dataclass(frozen=True)
class Fault:
    """One experiment."""

    transport: str
    size: int
    position: str
    moment: str
    end: str

    @property
    def victim(self) -> int:
        return {"first": 0, "middle": self.size // 2, "last": self.size - 1}[self.position]

    @property
    def survivors(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.victim]

    def __str__(self) -> str:
        return f"{self.transport}-np{self.size}-rank{self.victim}-{self.moment}-{self.end}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Fault:
        return Fault(**json.loads(text))


def _possible(fault: Fault) -> bool:
    if fault.position == "middle" and fault.size == 2:
        return False
    # A helper thread ends the victim there, and an exception in it would end only the thread.
    return not (fault.moment == "in_shutdown" and fault.end == "exception")


def every() -> list[Fault]:
    """The full matrix."""
    product = itertools.product(TRANSPORTS, SIZES, POSITIONS, MOMENTS, ENDS)
    return [fault for fault in (Fault(*values) for values in product) if _possible(fault)]


def _pairs(fault: Fault) -> Iterator[tuple[tuple[str, object], tuple[str, object]]]:
    return itertools.combinations(asdict(fault).items(), 2)


def covering() -> list[Fault]:
    """A small subset in which every possible pair of two values occurs; the same one every time."""
    candidates = every()
    random.Random(1).shuffle(candidates)  # else ties would always favour the first value
    wanted = {pair for fault in candidates for pair in _pairs(fault)}
    chosen: list[Fault] = []
    while wanted:
        best = max(candidates, key=lambda fault: len(wanted.intersection(_pairs(fault))))
        wanted.difference_update(_pairs(best))
        candidates.remove(best)
        chosen.append(best)
    return sorted(chosen, key=every().index)
