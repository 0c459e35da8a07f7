"""What is measured and what it should come to. Pure data and logic, no processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from horovod.bench.sizes import show_size

GRADIENTS = "grads"
ALLREDUCE = "allreduce"


@dataclass(frozen=True)
class Case:
    """One piece of work that all contenders do alternately. `size` in bytes; 0 for the gradients.

    `shared`: the tensors are in memory of hvd.empty(), for all contenders.
    """

    work: str
    dtype: str = "float32"
    size: int = 0
    shared: bool = False

    @property
    def key(self) -> str:
        return f"{self.work}/{self.dtype}/{self.size}/{self.shared}"

    @property
    def title(self) -> str:
        what = ("" if self.dtype == "float32" else f" {self.dtype}") + ", hvd.empty" * self.shared
        if self.work == GRADIENTS:
            return f"161 ResNet-50 gradients{what}"
        return f"allreduce {show_size(self.size)}{what}"


@dataclass(frozen=True)
class Launch:
    """One set of processes and what they measure. `mpi`: started by mpirun, so that Open MPI takes part."""

    np: int
    transport: str
    mpi: bool
    cases: tuple[Case, ...]


def _sizes(*sizes: int) -> tuple[Case, ...]:
    return tuple(Case(ALLREDUCE, size=size) for size in sizes)


_KI, _MI = 1 << 10, 1 << 20
_HALF = Case(ALLREDUCE, "float16", 64 * _MI)
_STEP = Case(GRADIENTS)
_SHARED_STEP = Case(GRADIENTS, shared=True)
_SHARED = (*(Case(ALLREDUCE, size=size, shared=True) for size in (_MI, 16 * _MI, 64 * _MI)), _SHARED_STEP)

LAUNCHES = (
    Launch(
        2, "shm", True, (*_sizes(4, 64 * _KI, _MI, 16 * _MI, 64 * _MI, 128 * _MI), _HALF, _STEP, *_SHARED)
    ),
    Launch(2, "tcp", False, (*_sizes(4, 64 * _KI, _MI, 16 * _MI, 64 * _MI), _STEP)),
    Launch(4, "shm", True, (*_sizes(4, 64 * _KI, _MI, 16 * _MI, 64 * _MI), _STEP, *_SHARED)),
)


@dataclass(frozen=True)
class Target:
    """`peer` takes at least `least` times as long as we do, or we at most `most` times as long as it.

    Without a peer, `most` is in seconds.
    """

    np: int
    transport: str
    case: Case
    peer: str | None
    least: float | None = None
    most: float | None = None

    def reached(self, figure: float) -> bool:
        """`figure` is peer / ours for `least`, else ours / peer or our seconds."""
        return figure >= self.least if self.least is not None else figure <= (self.most or 0.0)


def _faster(np: int, transport: str, peer: str, least: float, *cases: Case) -> list[Target]:
    return [Target(np, transport, case, peer, least=least) for case in cases]


TARGETS = (
    Target(2, "shm", Case(ALLREDUCE, size=4), None, most=12e-6),
    *_faster(2, "shm", "mpi", 1 / 5, *_sizes(4)),
    *_faster(2, "shm", "mpi", 1, *_sizes(64 * _KI)),
    *_faster(2, "shm", "mpi", 1.5, *_sizes(_MI)),
    *_faster(4, "shm", "mpi", 1 / 3, *_sizes(4)),
    *_faster(4, "shm", "mpi", 1 / 1.2, *_sizes(64 * _KI)),
    Target(2, "shm", _STEP, "memcpy", most=1.35),
    Target(2, "shm", _SHARED_STEP, "memcpy", most=1.35),
    *_faster(2, "shm", "gloo", 10, *_sizes(64 * _KI)),
    *_faster(2, "shm", "gloo", 6, *_sizes(_MI)),
    *_faster(2, "shm", "gloo", 4, *_sizes(16 * _MI)),
    *_faster(2, "shm", "gloo", 5, *_sizes(64 * _MI, 128 * _MI)),
    *_faster(2, "shm", "mpi", 3, *_sizes(64 * _MI, 128 * _MI)),
    *(Target(2, "shm", case, "memcpy", most=1.6) for case in _sizes(64 * _MI, 128 * _MI)),
    *_faster(2, "shm", "gloo", 6, _HALF),
    *_faster(2, "shm", "gloo", 4, _STEP),
    *_faster(2, "tcp", "gloo", 2, *_sizes(_MI)),
    *_faster(2, "tcp", "gloo", 1.3, *_sizes(16 * _MI, 64 * _MI)),
    *_faster(4, "shm", "gloo", 4, *_sizes(64 * _MI)),
)


@dataclass(frozen=True)
class Line:
    """A comparison. `ratio` is peer / ours; for memcpy ours / peer. None without a peer."""

    np: int
    transport: str
    case: Case
    runs: int
    ours: float
    peer: str | None
    theirs: float | None
    target: Target | None

    @property
    def ratio(self) -> float | None:
        if self.theirs is None:
            return None
        return self.ours / self.theirs if self.peer == "memcpy" else self.theirs / self.ours

    @property
    def reached(self) -> bool | None:
        """None where there is no target."""
        if self.target is None:
            return None
        return self.target.reached(self.ours if self.ratio is None else self.ratio)


def compare(
    launch: Launch, medians: Mapping[str, Mapping[str, float]], runs: Mapping[str, int]
) -> list[Line]:
    """The lines for what a launch has measured: case key -> contender -> median in seconds."""
    lines = []
    for case in launch.cases:
        found = medians[case.key]
        targets = {
            target.peer: target
            for target in TARGETS
            if (target.np, target.transport, target.case) == (launch.np, launch.transport, case)
        }
        peers: list[str | None] = [name for name in ("gloo", "mpi", "memcpy") if name in found]
        if None in targets:
            peers.insert(0, None)
        for peer in peers:
            theirs = None if peer is None else found[peer]
            place = (launch.np, launch.transport, case, runs[case.key])
            lines.append(Line(*place, found["ours"], peer, theirs, targets.get(peer)))
    return lines
