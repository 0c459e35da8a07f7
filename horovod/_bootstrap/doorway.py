"""Lets connections in, but only those that authenticate, and keeps the rest from using up the process.

A stranger costs one descriptor and about 2 KB for at most a few seconds: their number is capped, the oldest
is dropped first. Nothing a stranger sends is looked at except the fixed-size proof.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable, Mapping

from horovod._bootstrap.auth import Acceptor, Authentication, AuthenticationError, Session, place_of
from horovod._bootstrap.descriptors import limit

HANDSHAKE_SECONDS = 5.0
# Even when crowded out a newcomer has this long to answer the challenge: plenty for an honest one, and a
# flood of connections is still worked off at thousands a second. If nobody makes it, they get more.
CROWDED_SECONDS = 0.05
CROWDED_SECONDS_AT_MOST = 0.4
_ACCEPTS_PER_TURN = 64  # so that a flood can't keep the loop from everything else
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def default_capacity(doorways: int = 1, honest: int = 0) -> int:
    """Strangers at a time: a quarter of the descriptors this process may have, at most 1024.

    For all ``doorways`` of a process together, but each must have room for the ``honest`` ones it expects.
    """
    return max(16, honest, min(1024, limit() // 4) // max(1, doorways))


class _Stranger:
    def __init__(self, sock: socket.socket, acceptor: Acceptor, arrived: float) -> None:
        self.sock = sock
        self.acceptor = acceptor
        self.arrived = arrived
        self.authentication = Authentication(sock, acceptor)


class Doorway:
    """A listener on a selector whose keys carry a callback without arguments as data.

    `expected` maps the tags of the acceptable purposes to them, see Acceptor; the caller may change it
    meanwhile. `on_open(socket, purpose, session)` takes ownership of an authenticated, non-blocking socket.
    Call tick() at least every next_wait() seconds. Owns the listener.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        key: bytes,
        expected: Mapping[bytes, str],
        on_open: Callable[[socket.socket, str, Session], None],
        capacity: int | None = None,
    ) -> None:
        self._selector = selector
        self._listener = listener
        self._key = key
        self._expected = expected
        self._place = place_of(listener.getsockname())
        self._on_open = on_open
        self._capacity = default_capacity() if capacity is None else capacity
        self._strangers: dict[_Stranger, None] = {}  # in order of arrival
        self._patience = CROWDED_SECONDS
        self._crowded_out = 0  # strangers, since somebody made it or the patience has grown
        self._paused_until: float | None = None
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Closes the listener and every connection that has not been authenticated."""
        if self._paused_until is None and self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
        self._paused_until = None
        self._listener.close()
        for stranger in list(self._strangers):
            self._drop(stranger)

    def tick(self, now: float) -> None:
        """Drops strangers that took too long and takes up accepting again."""
        while self._strangers:
            oldest = next(iter(self._strangers))
            if now - oldest.arrived < HANDSHAKE_SECONDS:
                break
            self._drop(oldest)
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def next_wait(self, now: float) -> float | None:
        """Seconds until tick() has something to do; None if never."""
        times = [] if self._paused_until is None else [self._paused_until]
        if self._strangers:
            times.append(next(iter(self._strangers)).arrived + HANDSHAKE_SECONDS)
        return max(0.0, min(times) - now) if times else None

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            now = time.monotonic()
            if len(self._strangers) >= self._capacity:
                oldest = next(iter(self._strangers))
                if now - oldest.arrived < self._patience:
                    self._pause(oldest.arrived + self._patience)
                    return
                self._drop(oldest)
                self._crowded_out += 1
                if self._crowded_out >= self._capacity:
                    self._adapt(2 * self._patience)
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    if not self._strangers:
                        self._pause(now + CROWDED_SECONDS)
                        return
                    self._drop(next(iter(self._strangers)))
                continue  # anything else (ECONNABORTED ...) is about one connection only
            self._welcome(sock, now)

    def _welcome(self, sock: socket.socket, now: float) -> None:
        try:
            stranger = _Stranger(sock, Acceptor(self._key, self._expected, self._place), now)
        except OSError:
            sock.close()
            return
        self._strangers[stranger] = None
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._advance(stranger))

    def _advance(self, stranger: _Stranger) -> None:
        if stranger not in self._strangers:
            return  # dropped earlier in the same turn of the loop
        try:
            session = stranger.authentication.advance()
        except (AuthenticationError, OSError):
            self._drop(stranger)
            return
        if session is None:
            return
        self._adapt(2 * (time.monotonic() - stranger.arrived))
        del self._strangers[stranger]
        self._selector.unregister(stranger.sock)
        self._on_open(stranger.sock, stranger.acceptor.purpose, session)

    def _adapt(self, patience: float) -> None:
        self._patience = max(CROWDED_SECONDS, min(patience, CROWDED_SECONDS_AT_MOST))
        self._crowded_out = 0

    def _drop(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger.sock)
        stranger.sock.close()

    def _pause(self, until: float) -> None:
        self._selector.unregister(self._listener)
        self._paused_until = until
