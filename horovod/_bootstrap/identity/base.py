"""What is known about this process's place in a job, and what recognises a launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol


@dataclass(frozen=True)
class DiscoveryHints:
    """What a launcher that runs no rendezvous server tells about the job: rank 0 will run it."""

    launcher: str  # for messages
    marker: str  # a variable that the launcher's processes have, and the launcher itself has not
    # Different for any two jobs of a cluster; empty if the launcher gives no such thing
    job: str = ""
    local: tuple[int, int] | None = None  # local rank and size, if the launcher tells them
    address: str = ""  # name of rank 0's host, if the user or the launcher gives it
    address_from: str = ""  # the variable
    port: int = 0  # where rank 0 listens at that address; 0: follows from the key
    mpi: bool = False  # MPI sees the same ranks


@dataclass(frozen=True)
class Place:
    """Where a process stands: among all, among those of its host, and among the hosts."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    def numbers(self) -> dict[str, int]:
        """These six, by name."""
        return {each.name: getattr(self, each.name) for each in fields(Place)}

    def variables(self) -> dict[str, str]:
        """What tells it to the process: HOROVOD_RANK and so on."""
        return {f"HOROVOD_{name.upper()}": str(number) for name, number in self.numbers().items()}


@dataclass(frozen=True)
class Identity(Place):
    """This process's place in the job and how to reach the others. A job of one needs no
    rendezvous.

    With `discovery` the rendezvous and the key are still to be found out, and the local and cross
    numbers follow from the hosts of all ranks: until then they are 0 of 1.
    """

    host: str
    rendezvous: tuple[str, int] | None = None
    key: bytes | None = field(default=None, repr=False)  # must not end up in a log
    # Where the other hosts reach this one, best first; empty: find out
    addresses: tuple[str, ...] = ()
    discovery: DiscoveryHints | None = None
    # Whether the server itself named the address of the rendezvous: one from the user may be
    # translated.
    rendezvous_is_own: bool = True


class Launcher(Protocol):
    """Recognises a launcher by what it leaves in the environment."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        """None if it was another launcher; ValueError naming a variable that is wrong."""
