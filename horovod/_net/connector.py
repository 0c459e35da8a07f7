"""Authenticated connections to other processes, made at once or on a selector."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from horovod._net.addresses import Endpoint, family_of
from horovod._net.handshake import (
    Authentication,
    AuthenticationError,
    Initiator,
    Session,
    authenticate,
    place_of,
)
from horovod._net.listener import HANDSHAKE_SECONDS

Address = Endpoint | str

# Over about five seconds: a crowded or just dying peer; the server knows more about the second
_ATTEMPTS = 8
_FIRST_PAUSE = 0.02
_CONNECT_SECONDS = 1.0  # before another address of the same peer is tried


def open_socket(address: tuple[str, int], timeout: float) -> socket.socket:
    """Connects to a name or numeric address; the socket has that timeout."""
    if not place_of(address):
        return socket.create_connection(address, timeout=timeout)
    # Looking up even a numeric address would load the tables for names in other scripts.
    sock = socket.socket(family_of(address[0]), socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(endpoint: Endpoint, key: bytes, purpose: str, seconds: float) -> tuple[socket.socket, Session]:
    """A connection to a process that listens at this very address; the socket is non-blocking.

    Gives `seconds` to connecting and as many to the handshake. Raises AuthenticationError or
    OSError.
    """
    sock = open_socket(endpoint, seconds)
    try:
        side = Initiator(key, purpose, place_of(endpoint))
        return sock, authenticate(sock, side, time.monotonic() + seconds)
    except BaseException:
        sock.close()
        raise


class Connector:
    """Connects at once and again if dropped. The selector's keys carry a callback without arguments
    as data.

    `targets` are families and addresses that lead to the peer, tried in turn, best first.
    `on_open(socket, session)` takes ownership of the authenticated, non-blocking socket. `bound`:
    the peer listens at the very addresses of the targets, so a relay at such an address is refused.
    `gave_up` is set when trying again is pointless; `problem` says what went wrong last. Call
    tick() at least every next_wait() seconds.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        key: bytes,
        purpose: str,
        targets: Sequence[tuple[int, Address]],
        on_open: Callable[[socket.socket, Session], None],
        rounds: int = _ATTEMPTS,
        bound: bool = True,
    ) -> None:
        self._selector, self._key, self._purpose = selector, key, purpose
        self._targets, self._rounds, self._bound = targets, rounds, bound
        self._family, self._address = targets[0]
        self._on_open = on_open
        self._attempts = 0
        self._sock: socket.socket | None = None
        self._authentication: Authentication | None = None
        self._next: float | None = None  # when to try again, or to give a handshake up
        self.problem = "no answer yet"
        self.gave_up = False
        self._attempt()

    def close(self) -> None:
        """Stops trying."""
        self._next = None
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None

    def tick(self, now: float) -> None:
        """Ends a handshake that takes too long; tries again after a pause."""
        if self._next is None or now < self._next:
            return
        if self._authentication is not None:
            self._failed("the other end does not finish the handshake")
        elif self._sock is not None:
            self._failed("no answer")
        else:
            self._attempt()

    def next_wait(self, now: float) -> float | None:
        """Seconds until tick() has something to do; None if never."""
        return None if self._next is None else max(0.0, self._next - now)

    def _attempt(self) -> None:
        self._family, self._address = self._targets[self._attempts % len(self._targets)]
        self._attempts += 1
        # With a single address the kernel's patience, and the caller's, is the best there is.
        self._next = time.monotonic() + _CONNECT_SECONDS if len(self._targets) > 1 else None
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        self._sock = sock
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_WRITE, lambda: self._connected(sock))
        code = sock.connect_ex(self._address)
        if code == 0:
            self._connected(sock)
        elif code != errno.EINPROGRESS:
            # Without the name in its namespace a Unix socket can't come to exist later.
            hopeless = self._family == socket.AF_UNIX and code != errno.EAGAIN
            self._failed(os.strerror(code), hopeless)

    def _connected(self, sock: socket.socket) -> None:
        if sock is not self._sock or self._authentication is not None:
            return
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._failed(os.strerror(code))
            return
        self._next = time.monotonic() + HANDSHAKE_SECONDS
        place = place_of(self._address) if self._bound else ""
        try:
            if self._family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._authentication = Authentication(sock, Initiator(self._key, self._purpose, place))
        except OSError as error:
            self._failed(str(error))
            return
        self._selector.modify(sock, selectors.EVENT_READ, lambda: self._advance(sock))

    def _advance(self, sock: socket.socket) -> None:
        if sock is not self._sock or self._authentication is None:
            return
        try:
            session = self._authentication.advance()
        except AuthenticationError as error:
            self._failed(str(error), hopeless=True)
            return
        except OSError as error:
            self._failed(str(error))
            return
        if session is None:
            return
        self._selector.unregister(sock)
        self._sock = None
        self._next = None
        self._on_open(sock, session)

    def _failed(self, problem: str, hopeless: bool = False) -> None:
        self.close()
        self._authentication = None
        self.problem = problem
        done, position = divmod(self._attempts, len(self._targets))
        # Of several addresses one may lead to a stranger, and another one to the peer.
        if (hopeless and len(self._targets) == 1) or done >= self._rounds:
            self.gave_up = True
        else:
            pause = _FIRST_PAUSE * 2 ** (done - 1) if position == 0 else 0.0
            self._next = time.monotonic() + pause
