"""What goes into the core and what comes out of it, in Python's types. _core.py hands them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class PeerLike(Protocol):
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def same_host(self) -> bool: ...


class SessionLike(Protocol):
    @property
    def send(self) -> bytes: ...
    @property
    def receive(self) -> bytes: ...


class WorldLike(Protocol):
    """Who the ranks are and the connected descriptors to them; what hvd_world says of each field."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def transport(self) -> str: ...
    @property
    def peers(self) -> Sequence[PeerLike]: ...
    @property
    def control_fds(self) -> Sequence[int]: ...
    @property
    def parents(self) -> Sequence[int]: ...
    @property
    def liveness_fds(self) -> Sequence[int]: ...
    @property
    def mesh_fds(self) -> Sequence[int] | None: ...
    @property
    def streams(self) -> int: ...
    @property
    def shm_fd(self) -> int: ...
    @property
    def hosts(self) -> Sequence[int] | None: ...
    @property
    def control_sessions(self) -> Sequence[SessionLike | None]: ...
    @property
    def liveness_sessions(self) -> Sequence[SessionLike | None]: ...
    @property
    def mesh_sessions(self) -> Sequence[SessionLike | None] | None: ...


class MpiTable(NamedTuple):
    """hvd_mpi: handles as numbers, functions as addresses."""

    handle_bytes: int
    communicator: int
    byte_type: int
    isend: int
    irecv: int
    test: int
    error_string: int


class Summary(NamedTuple):
    """How far a rank has come, as rank 0 heard it `age` seconds ago; see hvd_summary."""

    rank: int
    known: bool
    age: float
    steps: int
    operations: int
    bytes: int
    blocked_ns: int
    cpu_ns: int
    resident_bytes: int
    dropped: int
    pending: int
    name: str
    running_ns: int
    idle_ns: int
    step_ns: int
    last_ready: int
    late_ns: int
    rtt_ns: int
    clock_offset_ns: int
    waited_for: bool


class Event(NamedTuple):
    """See hvd_event; `kind` is one of EVENT_*, `how` one of STACKS_*."""

    kind: int
    rank: int
    number: int
    how: int
    text: str


class Culprit(NamedTuple):
    """A rank whose fault it is that an engine has ended; `silent`: it has not ended itself."""

    rank: int
    silent: bool


class TensorSpec(NamedTuple):
    """One tensor of a request: addresses, shape and dtype code. Output 0 asks the engine to allocate."""

    input: int
    output: int
    shape: Sequence[int]
    dtype: int
