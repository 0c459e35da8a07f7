"""The list of all ranks on its way from rank 0 to the others, down the tree of control connections.

The rendezvous server sends it to rank 0 only. Every other rank gets it from the one above and
passes it on, so that no process sends it more often than it has ranks below.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

from horovod._net.frames import Body, Decoder, FrameError, Sealer, encode
from horovod._net.handshake import Session

_PART = "list of ranks"
_CHUNK_BYTES = 1 << 16


class Spreading:
    """One rank's share in it, on a selector whose keys carry a callback without arguments as data.

    The sockets stay the caller's. Nothing else may be read from or written to them until it is
    through; what comes next on such a connection has other keys.
    """

    def __init__(self, selector: selectors.BaseSelector, packed: str | None = None) -> None:
        """`packed` is the list, see roster.pack(), where it is known: at rank 0."""
        self._selector = selector
        self.packed: str | None = None
        self.problem = ""  # why it can't come any more
        self.failed_at = 0.0  # since when, by time.monotonic()
        self._body: Body | None = None
        self._below: list[tuple[socket.socket, Session]] = []  # to be served when it is there
        self._unsent: dict[socket.socket, memoryview] = {}
        if packed is not None:
            self._got(packed)

    @property
    def through(self) -> bool:
        """It has come, and all below have been sent it."""
        return self.packed is not None and not self._unsent

    def receive_from(self, sock: socket.socket, session: Session) -> None:
        """The connection to the rank above."""
        decoder = Decoder(session.part(_PART).receive)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._receive(sock, decoder))

    def send_to(self, sock: socket.socket, session: Session) -> None:
        """A connection to a rank below."""
        if self._body is None:
            self._below.append((sock, session))
            return
        head = Sealer(session.part(_PART).send).head(self._body)
        self._unsent[sock] = memoryview(head + self._body.content)
        self._selector.register(sock, selectors.EVENT_WRITE, lambda: self._send(sock))

    def forget(self, sock: socket.socket) -> None:
        """A connection that another one has taken the place of."""
        self._below = [each for each in self._below if each[0] is not sock]
        self._unsent.pop(sock, None)
        with contextlib.suppress(KeyError):
            self._selector.unregister(sock)

    def _receive(self, sock: socket.socket, decoder: Decoder) -> None:
        try:
            data = sock.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionError("it was closed")
            messages = decoder.feed(data)
            if not messages:
                return
            packed = messages[0].get("ranks")
            if not isinstance(packed, str):
                raise FrameError("something else came")
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self.problem, self.failed_at = str(error), time.monotonic()
            self._selector.unregister(sock)
            return
        self._selector.unregister(sock)
        self._got(packed)

    def _got(self, packed: str) -> None:
        self.packed = packed
        self._body = encode({"ranks": packed})
        below, self._below = self._below, []
        for sock, session in below:
            self.send_to(sock, session)

    def _send(self, sock: socket.socket) -> None:
        if sock not in self._unsent:
            return  # forgotten earlier in the same turn of the loop
        try:
            left = self._unsent[sock] = self._unsent[sock][sock.send(self._unsent[sock]) :]
        except BlockingIOError:
            return
        except OSError:  # the rank is gone, which the server tells, or comes again
            left = memoryview(b"")
        if not left:
            self.forget(sock)
