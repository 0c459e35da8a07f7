"""What an elastic launcher needs of the rendezvous server, besides what every launcher does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from horovod._net.frames import Message
from horovod.runner.launcher.rendezvous import Rendezvous


class ElasticRendezvous(Rendezvous, Protocol):
    """horovod._bootstrap.rendezvous.server has it."""

    def on_elastic(self, handler: Callable[[Any], None]) -> None:
        """``handler`` is called in another thread with what horovod._bootstrap.rendezvous.enlistment
        defines."""

    def expect(self, worker: int) -> None:
        """A worker with this number will come."""

    def assign(self, assignments: Mapping[int, Message]) -> None:
        """Gives waiting workers their places in the next world."""

    def refuse(self, worker: int, text: str) -> None:
        """A worker is answered from now on that it is removed."""

    def worker_ended(self, worker: int, text: str) -> None:
        """A worker's process is gone."""

    def listen_also_on(self, hosts: Iterable[str]) -> None:
        """Opens further listeners."""

    def forget(self, purpose: str) -> None:
        """The opposite of accept()."""
