"""Makes one authenticated connection to another process, on a selector."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from horovod._bootstrap.auth import Authentication, AuthenticationError, Initiator, Session, place_of
from horovod._bootstrap.doorway import HANDSHAKE_SECONDS

Address = tuple[str, int] | str

_ATTEMPTS = 8  # over about five seconds: a crowded or just dying peer; the server knows more about the second
_FIRST_PAUSE = 0.02
_CONNECT_SECONDS = 1.0  # before another address of the same peer is tried


def family_of(address: str) -> int:
    """The address family of a numeric IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_own(address: str) -> bool:
    """Whether a numeric IP address is one of this machine: others can't be bound."""
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def elsewhere(endpoints: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those endpoints of a peer on another host that are not addresses of this one as well.

    Hosts often have a private network of the same address each (docker0). If nothing is left, the other host
    is this machine by another name, and all count.
    """
    foreign = [endpoint for endpoint in endpoints if not is_own(endpoint[0])]
    return foreign or list(endpoints)


class Dialer:
    """Connects at once and again if dropped. The selector's keys carry a callback without arguments as data.

    `targets` are families and addresses that lead to the peer, tried in turn, best first.
    `on_open(socket, session)` takes ownership of the authenticated, non-blocking socket. `bound`: the peer
    listens at the very addresses of the targets, so whoever passes a connection on from there is refused.
    `gave_up` is set when trying again is pointless; `problem` says what went wrong last. Call tick() at least
    every next_wait() seconds.
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
        self._selector = selector
        self._key = key
        self._purpose = purpose
        self._targets = targets
        self._rounds = rounds
        self._bound = bound
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
