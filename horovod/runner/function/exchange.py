"""A function for workers that mpirun has started, and their results: through the rendezvous
server's door.

mpirun passes on no descriptors, and its workers may be on other hosts. Each connects once for the
function and once with its result, so that nothing depends on a connection that is idle for days.
Both ends have proved that they know the job's key before anything is unpickled.
"""

from __future__ import annotations

import base64
import contextlib
import random
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from horovod._net.addresses import Endpoint
from horovod._net.connector import connect
from horovod._net.frames import FrameError, FrameStream
from horovod._net.handshake import (
    AuthenticationError,
    Session,
    check_key,
)

VARIABLE = "_HOROVOD_TASK_DOOR"  # "<key in hex>@<address>:<port>,<address>:<port>"
PURPOSE = "task"  # what a connection is authenticated for

_PIECE_BYTES = 4 << 20
_PIECE_SECONDS = 60.0  # for one piece, however many there are
_CONNECT_SECONDS = 60.0  # to get through to the launcher
_ADDRESS_SECONDS = 5.0  # for one attempt at one of its addresses
_AT_ONCE = 32  # workers that are served at the same time


class FunctionServer:
    """The launcher's end."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._pool = ThreadPoolExecutor(_AT_ONCE, "hvd-task")
        self.results: dict[int, bytes] = {}  # by rank; complete when the workers have ended

    def serve(self, sock: socket.socket, session: Session) -> None:
        """Becomes the owner of an authenticated connection. Does not block."""
        self._pool.submit(self._serve, sock, session)

    def _serve(self, sock: socket.socket, session: Session) -> None:
        # A worker that has lost its connection says so itself.
        with sock, contextlib.suppress(OSError, EOFError, FrameError):
            stream = FrameStream(sock, session)
            rank = stream.receive(_soon()).get("rank")
            if rank is None:
                _send(stream, self._payload)
                return
            self.results[int(rank)] = _receive(stream)
            stream.send({"kept": True}, _soon())


def described(key: bytes, endpoints: Sequence[Endpoint]) -> str:
    """The value of VARIABLE."""
    return f"{key.hex()}@{','.join(f'{address}:{port}' for address, port in endpoints)}"


class FunctionClient:
    """A worker's end. ConnectionError if the launcher can't be reached."""

    def __init__(self, description: str) -> None:
        key, _, places = description.partition("@")
        self._key = check_key(bytes.fromhex(key))
        words = [place.rpartition(":") for place in places.split(",")]
        self._endpoints: list[Endpoint] = [(address, int(port)) for address, _, port in words]

    def fetch(self) -> bytes:
        """The function, pickled."""
        with self._stream() as stream:
            stream.send({}, _soon())
            return _receive(stream)

    def hand_in(self, rank: int, result: bytes) -> None:
        """Returns when the launcher has it."""
        with self._stream() as stream:
            stream.send({"rank": rank}, _soon())
            _send(stream, result)
            stream.receive(_soon())

    @contextlib.contextmanager
    def _stream(self) -> Iterator[FrameStream]:
        sock, session = self._connect()
        with sock:
            yield FrameStream(sock, session)

    def _connect(self) -> tuple[socket.socket, Session]:
        deadline = time.monotonic() + _CONNECT_SECONDS
        problems: dict[Endpoint, str] = {}
        while time.monotonic() < deadline:
            for endpoint in self._endpoints:
                try:
                    return connect(endpoint, self._key, PURPOSE, _ADDRESS_SECONDS)
                except (OSError, AuthenticationError) as error:  # full of others; not ours
                    problems[endpoint] = f"{endpoint[0]}:{endpoint[1]}: {error}"
            time.sleep(random.uniform(0.1, 0.5))  # many ranks start at the same time
        raise ConnectionError(
            "the launcher, which has the function and takes the results, can't be reached from here: "
            f"{'; '.join(problems.values())}; name a network that all hosts have with network_interfaces="
        )


def _soon() -> float:
    return time.monotonic() + _PIECE_SECONDS


def _send(stream: FrameStream, content: bytes) -> None:
    for start in range(0, max(1, len(content)), _PIECE_BYTES):
        piece = content[start : start + _PIECE_BYTES]
        more = start + len(piece) < len(content)
        stream.send({"piece": base64.b64encode(piece).decode(), "more": more}, _soon())


def _receive(stream: FrameStream) -> bytes:
    pieces: list[bytes] = []
    more = True
    while more:
        message = stream.receive(_soon())
        pieces.append(base64.b64decode(message["piece"]))
        more = message["more"]
    return b"".join(pieces)
