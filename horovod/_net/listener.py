"""Lets connections in, but only those that authenticate, and keeps the rest from using up the
process.

A stranger costs one descriptor and about 2 KB for at most a few seconds: their number is capped for
the whole process, the oldest is dropped first. Nothing a stranger sends is looked at except the
fixed-size proof.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable, Mapping

from horovod._net.descriptors import limit
from horovod._net.handshake import Acceptor, Authentication, AuthenticationError, Session, place_of

HANDSHAKE_SECONDS = 5.0
# Even when crowded out a newcomer has this long to answer the challenge: plenty for an honest one,
# and a flood of connections is still worked off at thousands a second. If nobody makes it, they get
# more.
CROWDED_SECONDS = 0.05
CROWDED_SECONDS_AT_MOST = 0.4
_ACCEPTS_PER_TURN = 64  # so that a flood can't keep the loop from everything else
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def default_capacity() -> int:
    """Strangers at a time in this process: a quarter of its descriptors, at most 1024."""
    return min(1024, limit() // 4)


class _Stranger:
    def __init__(self, sock: socket.socket, listener: Listener, acceptor: Acceptor, arrived: float) -> None:
        self.sock = sock
        self.listener = listener
        self.acceptor = acceptor
        self.arrived = arrived
        self.authentication = Authentication(sock, acceptor)


class Crowd:
    """The strangers at all listeners of one selector, who share one limit.

    There is room for the ``honest`` ones that are expected. ``threads`` of the process have
    listeners at the same time, and divide what it may have.
    """

    def __init__(self, honest: int = 0, threads: int = 1) -> None:
        self.capacity = max(16, honest, default_capacity() // threads)
        self.strangers: dict[_Stranger, None] = {}  # in order of arrival
        self.patience = CROWDED_SECONDS
        self.crowded_out = 0  # strangers, since somebody made it or the patience has grown

    def adapt(self, patience: float) -> None:
        """To how long the honest ones take, or to there being none."""
        self.patience = max(CROWDED_SECONDS, min(patience, CROWDED_SECONDS_AT_MOST))
        self.crowded_out = 0


class Listener:
    """A listening socket on a selector whose keys carry a callback without arguments as data.

    `expected` maps the tags of the acceptable purposes to them, see Acceptor; the caller may change
    it meanwhile. `on_open(socket, purpose, session)` takes ownership of an authenticated,
    non-blocking socket. Call tick() at least every next_wait() seconds. Owns the socket. A `crowd`
    belongs to one selector.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sock: socket.socket,
        key: bytes,
        expected: Mapping[bytes, str],
        on_open: Callable[[socket.socket, str, Session], None],
        crowd: Crowd | None = None,
    ) -> None:
        self._selector = selector
        self._socket = sock
        self._key = key
        self._expected = expected
        self._place = place_of(sock.getsockname())
        self._on_open = on_open
        self._crowd = crowd or Crowd()
        self._strangers = self._crowd.strangers
        self._paused_until: float | None = None
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Closes the socket and every connection that has not been authenticated."""
        if self._paused_until is None and self._socket.fileno() >= 0:
            self._selector.unregister(self._socket)
        self._paused_until = None
        self._socket.close()
        for stranger in [each for each in self._strangers if each.listener is self]:
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
            self._selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def next_wait(self, now: float) -> float | None:
        """Seconds until tick() has something to do; None if never."""
        times = [] if self._paused_until is None else [self._paused_until]
        if self._strangers:
            times.append(next(iter(self._strangers)).arrived + HANDSHAKE_SECONDS)
        return max(0.0, min(times) - now) if times else None

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            now = time.monotonic()
            if len(self._strangers) >= self._crowd.capacity:
                oldest = next(iter(self._strangers))
                if now - oldest.arrived < self._crowd.patience:
                    self._pause(oldest.arrived + self._crowd.patience)
                    return
                self._drop(oldest)
                self._crowd.crowded_out += 1
                if self._crowd.crowded_out >= self._crowd.capacity:
                    self._crowd.adapt(2 * self._crowd.patience)
            try:
                sock, _ = self._socket.accept()
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
            stranger = _Stranger(sock, self, Acceptor(self._key, self._expected, self._place), now)
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
        self._crowd.adapt(2 * (time.monotonic() - stranger.arrived))
        del self._strangers[stranger]
        self._selector.unregister(stranger.sock)
        self._on_open(stranger.sock, stranger.acceptor.purpose, session)

    def _drop(self, stranger: _Stranger) -> None:
        del self._strangers[stranger]
        self._selector.unregister(stranger.sock)
        stranger.sock.close()

    def _pause(self, until: float) -> None:
        self._selector.unregister(self._socket)
        self._paused_until = until
