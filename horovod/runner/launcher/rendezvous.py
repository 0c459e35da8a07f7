"""What the launcher needs of the rendezvous server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from horovod._net.addresses import Endpoint
from horovod._net.handshake import Session


class Rendezvous(Protocol):
    """horovod._bootstrap.rendezvous.server has it; tests put something simpler in its place."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where it listens."""

    def rank_failed(self, rank: int, text: str) -> None:
        """Makes ranks that are still looking for ``rank`` fail at once."""

    def listen_only_on(self, hosts: Iterable[str]) -> None:
        """Closes the listeners on other addresses."""

    def accept(self, purpose: str, handler: Callable[[socket.socket, Session], None]) -> None:
        """Hands over connections authenticated for ``purpose``, in another thread."""
