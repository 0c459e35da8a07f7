"""A worker's connection to the rendezvous server."""

from __future__ import annotations

import contextlib
import socket
import time

from horovod._bootstrap.rendezvous.protocol import PURPOSE
from horovod._net.connector import open_socket
from horovod._net.frames import FrameError, FrameStream, Message
from horovod._net.handshake import (
    AuthenticationError,
    ConnectionDropped,
    Initiator,
    Session,
    authenticate,
    place_of,
)
from horovod.errors import HorovodInternalError

_ATTEMPTS = 10  # a server under a flood of connections may drop an honest one
_LEAVE_SECONDS = 0.2
_LEAVE_CHARACTERS = 2000


class RendezvousClient:
    """Joined to one scope. Messages are taken in by on_readable(), to be called when the socket is
    readable.

    A failure is kept in `failure` rather than raised, because what came before it may already be
    enough.
    """

    def __init__(
        self,
        address: tuple[str, int],
        key: bytes,
        deadline: float,
        keeper: str = "the launcher",
        bound: bool = True,
    ) -> None:
        """`bound`: the server listens at this very address, if it is a numeric one."""
        self.server = f"{address[0]}:{address[1]}"
        self.keeper = keeper  # whose process the server is in
        place = place_of(address) if bound else ""
        self.sock, session = _connect(address, key, place, deadline, self.server, keeper)
        self._frames = FrameStream(self.sock, session)
        self._deadline = deadline
        self.heard = time.monotonic()
        self.failure: str | None = None
        self.world: Message | None = None
        self.shared: dict[str, Message] = {}  # the answer at each stage
        self.assignment: Message | None = None  # in an elastic job
        self.removed: str | None = None  # the same: why there is none any more

    @property
    def local_address(self) -> str:
        """The address of this host that leads to the server."""
        return str(self.sock.getsockname()[0])

    def send(self, message: Message) -> None:
        """Sends, or records the failure."""
        try:
            self._frames.send(message, max(self._deadline, time.monotonic() + _LEAVE_SECONDS))
        except (OSError, FrameError) as error:
            self._fail(f"the rendezvous server at {self.server} could not be reached any more: {error}")

    def on_readable(self) -> None:
        """Answers pings and keeps results."""
        try:
            messages = self._frames.receive_available()
        except EOFError:
            self._fail(f"the rendezvous server at {self.server} closed the connection: {self.keeper} ended")
            return
        except (OSError, FrameError) as error:
            self._fail(f"the connection to the rendezvous server at {self.server} failed: {error}")
            return
        self.heard = time.monotonic()
        for message in messages:
            kind = message.get("type")
            if kind == "ping":
                self.send({"type": "pong"})
            elif kind == "world":
                self.world = message
            elif kind == "shared":
                self.shared[message["stage"]] = message
            elif kind == "assignment":
                self.assignment = message
            elif kind == "removed":
                self.removed = str(message["text"])
            elif kind == "error":
                self._fail(str(message["text"]))

    def extend(self, deadline: float) -> None:
        """What is sent from now on has until then."""
        self._deadline = deadline

    def leave(self, text: str, unreached: int | None = None) -> None:
        """Tells the others why this rank gives up, as far as that is still possible, and which
        other rank it did not reach.
        """
        if self.failure is None:
            self._deadline = time.monotonic() + _LEAVE_SECONDS
            with contextlib.suppress(HorovodInternalError):
                self.send({"type": "leave", "text": text[:_LEAVE_CHARACTERS], "unreached": unreached})

    def close(self) -> None:
        """Ends the connection; before the world is ready that fails it for the others."""
        self.sock.close()

    def _fail(self, text: str) -> None:
        if self.failure is None:  # the first is the cause
            self.failure = text


def _connect(
    address: tuple[str, int], key: bytes, place: str, deadline: float, server: str, keeper: str
) -> tuple[socket.socket, Session]:
    pause = 0.02
    for attempt in range(_ATTEMPTS):
        remaining = deadline - time.monotonic()
        try:
            if remaining <= 0:
                raise TimeoutError("timed out")
            sock = open_socket(address, remaining)
        except OSError as error:
            raise HorovodInternalError(
                f"cannot reach the rendezvous server at {server}: {error}; is {keeper} still running, "
                "and does a firewall lie between?"
            ) from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock, authenticate(sock, Initiator(key, PURPOSE, place), deadline)
        except AuthenticationError as error:
            sock.close()
            raise HorovodInternalError(f"the rendezvous server at {server}: {error}") from error
        except (ConnectionError, ConnectionDropped) as error:
            sock.close()
            if attempt == _ATTEMPTS - 1:
                raise HorovodInternalError(
                    f"the rendezvous server at {server} dropped the connection {_ATTEMPTS} times: {error}"
                ) from error
            import random  # here: hardly ever needed

            time.sleep(random.uniform(0.5, 1.0) * pause)  # to leave a crowded server some air
            pause = min(1.0, 2 * pause)
        except OSError as error:
            sock.close()
            raise HorovodInternalError(
                f"the rendezvous server at {server} does not answer: {error}"
            ) from error
        except BaseException:
            sock.close()
            raise
    raise AssertionError("unreachable")
