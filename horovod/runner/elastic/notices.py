"""The launcher's end of the standing connections to the workers of an elastic job."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from horovod._bootstrap.notices import notices_purpose
from horovod._net.frames import Decoder, FrameError, Message, Sealer, encode
from horovod._net.handshake import Session
from horovod._net.keepalive import keep_alive

__all__ = ["Notices", "notices_purpose"]

_MESSAGE_BYTES = 1 << 14  # no honest one is larger
_UNSENT_BYTES = 1 << 20  # a worker that takes nothing for so long is not worth more memory
_CHUNK = 1 << 16


@dataclass
class _Connection:
    sock: socket.socket
    sealer: Sealer
    decoder: Decoder
    unsent: bytearray = field(default_factory=bytearray)


class Notices:
    """By worker. Only add() may be called from another thread than the launcher's loop.

    Nothing blocks. A connection that fails is forgotten without a word: the worker makes another.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._arrived: deque[tuple[int, socket.socket, Session]] = deque()
        self._connections: dict[int, _Connection] = {}
        self._newest: Message | None = None  # for those that connect later

    def add(self, worker: int, sock: socket.socket, session: Session) -> None:
        """Becomes the owner of an authenticated connection."""
        self._arrived.append((worker, sock, session))
        self._wake()

    def descriptors(self) -> dict[int, int]:
        """What to poll for reading, and the worker it stands for."""
        while self._arrived:
            worker, sock, session = self._arrived.popleft()
            self.drop(worker)
            sock.setblocking(False)
            keep_alive(sock)
            connection = _Connection(sock, Sealer(session.send), Decoder(session.receive, _MESSAGE_BYTES))
            self._connections[worker] = connection
            if self._newest is not None:
                self.send(worker, self._newest)
        return {connection.sock.fileno(): worker for worker, connection in self._connections.items()}

    def blocked(self) -> list[int]:
        """Descriptors to poll for room; flush() then."""
        return [each.sock.fileno() for each in self._connections.values() if each.unsent]

    def on_readable(self, worker: int) -> list[Message]:
        """What a worker has sent."""
        connection = self._connections.get(worker)
        if connection is None:
            return []
        try:
            data = connection.sock.recv(_CHUNK)
            if not data:
                self.drop(worker)
            return connection.decoder.feed(data)
        except BlockingIOError:
            return []
        except (OSError, FrameError):
            self.drop(worker)
            return []

    def send(self, worker: int, message: Message) -> bool:
        """Whether there is a connection to send it on."""
        connection = self._connections.get(worker)
        if connection is None:
            return False
        body = encode(message)
        connection.unsent += connection.sealer.head(body) + body.content
        self._flush(worker, connection)
        return True

    def broadcast(self, message: Message) -> None:
        """To all; the newest hosts_updated also to those that connect later."""
        if message.get("type") == "hosts_updated":
            self._newest = message
        self.descriptors()
        for worker in list(self._connections):
            self.send(worker, message)

    def flush(self) -> None:
        """Sends what there was no room for."""
        for worker, connection in list(self._connections.items()):
            if connection.unsent:
                self._flush(worker, connection)

    def drop(self, worker: int) -> None:
        connection = self._connections.pop(worker, None)
        if connection is not None:
            connection.sock.close()

    def close(self) -> None:
        self.descriptors()
        for worker in list(self._connections):
            self.drop(worker)

    def _flush(self, worker: int, connection: _Connection) -> None:
        try:
            while connection.unsent:
                del connection.unsent[: connection.sock.send(connection.unsent)]
        except BlockingIOError:
            if len(connection.unsent) > _UNSENT_BYTES:
                self.drop(worker)
        except OSError:
            self.drop(worker)
