"""Connections to the agents of other machines that carry nothing: they tell when a machine is gone.

The pipe through ssh would stay open for ever after a power failure or a cut cable.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from horovod._net.handshake import Session
from horovod._net.keepalive import keep_alive


class HostKeepalives:
    """By host. Only add() may be called from another thread than the launcher's loop.

    A machine is given up soon after it has been silent for ``seconds``.
    """

    def __init__(self, wake: Callable[[], None], seconds: float) -> None:
        self._wake = wake
        self._seconds = seconds
        self._arrived: deque[tuple[str, socket.socket]] = deque()
        self._sockets: dict[str, socket.socket] = {}

    def add(self, host: str, sock: socket.socket, _: Session) -> None:
        """Becomes the owner of an authenticated connection. Nothing is ever sent over it."""
        self._arrived.append((host, sock))
        self._wake()

    def descriptors(self) -> dict[int, str]:
        """What to poll, and the host it stands for."""
        while self._arrived:
            host, sock = self._arrived.popleft()
            keep_alive(sock, self._seconds)
            self.drop(host)
            self._sockets[host] = sock
        return {sock.fileno(): host for host, sock in self._sockets.items()}

    def problem(self, host: str) -> str | None:
        """To be asked when a descriptor is readable: why the machine is given up, None if it is
        not.

        An orderly end says nothing new: the agent's own words are on their way through ssh.
        """
        sock = self._sockets.get(host)
        if sock is None:
            return None
        try:
            sock.recv(1)
        except BlockingIOError:
            return None
        except OSError as error:
            self.drop(host)
            return f"{error.strerror}; it is down, or the network between is"
        self.drop(host)
        return None

    def drop(self, host: str) -> None:
        sock = self._sockets.pop(host, None)
        if sock is not None:
            sock.close()

    def close(self) -> None:
        self.descriptors()
        for host in list(self._sockets):
            self.drop(host)
