"""How a worker of an elastic job gets its place: it enlists at the rendezvous and waits."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, fields

from horovod._bootstrap.elastic_worker import ElasticWorker
from horovod._bootstrap.identity.base import Identity, Place
from horovod._bootstrap.rendezvous.client import RendezvousClient
from horovod._net.frames import Message
from horovod.errors import HorovodInternalError

_CONNECT_SECONDS = 30.0
_LOOK_SECONDS = 5.0  # between two looks at how long the launcher has been silent
_WHY_CHARACTERS = 500


class Removed(Exception):
    """This worker has no place in the job any more; the text says why."""


class LauncherGone(RuntimeError):
    """There is nobody to ask for a place."""


@dataclass(frozen=True)
class Assignment(Place):
    """A place in one generation of the job.

    `sync`: the members' states differ, or may; `source` is the rank that has the newest. `load`: no
    member has a state, but there is one on disk. Notices up to `sequence` have been taken into
    account.
    """

    generation: int
    addresses: tuple[str, ...]
    sync: bool
    source: int
    reason: str
    sequence: int
    load: bool = False

    @staticmethod
    def from_message(message: Message) -> Assignment:
        """KeyError, TypeError or ValueError if it is something else."""
        whole = ("generation", "source", "sequence", *(each.name for each in fields(Place)))
        return Assignment(
            **{name: int(message[name]) for name in whole},
            addresses=tuple(str(address) for address in message["addresses"]),
            sync=bool(message["sync"]),
            reason=str(message["reason"]),
            load=bool(message.get("load", False)),
        )

    def identity(self, worker: ElasticWorker) -> Identity:
        """The place as the world's builder wants it."""
        return Identity(
            *(self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size),
            host=worker.host,
            rendezvous=worker.rendezvous,
            key=worker.key,
            addresses=self.addresses,
        )


@dataclass(frozen=True)
class Application:
    """What a worker says of itself: see Enlisted."""

    generation: int = 0
    commit: int = -1
    rolled_back: bool = False
    culprit: int | None = None
    silent: bool = False
    why: str = ""


class ConnectionLost(LauncherGone):
    """The launcher may still be there."""


def enlist(
    worker: ElasticWorker, application: Application, peer_timeout: float, patience: float
) -> tuple[RendezvousClient, Assignment]:
    """Waits for a place, for as long as the launcher has a reason to let it wait.

    Returns the connection, on which to join the world of that generation. Raises Removed, or
    LauncherGone if it can't be reached, ends, or is silent for `patience` seconds.
    """
    try:
        client = RendezvousClient(worker.rendezvous, worker.key, time.monotonic() + _CONNECT_SECONDS)
    except HorovodInternalError as error:
        raise LauncherGone(str(error)) from error
    try:
        client.send(
            {
                "type": "enlist",
                "worker": worker.number,
                "pid": os.getpid(),
                "host": worker.host,
                "generation": application.generation,
                "commit": application.commit,
                "rolled_back": application.rolled_back,
                "culprit": application.culprit,
                "silent": application.silent,
                "why": application.why[:_WHY_CHARACTERS],
                "peer_timeout": peer_timeout,
            }
        )
        return client, _wait(client, patience)
    except BaseException:
        client.close()
        raise


def _wait(client: RendezvousClient, patience: float) -> Assignment:
    poller = select.poll()
    poller.register(client.sock, select.POLLIN)
    looked = time.monotonic()
    while client.assignment is None:
        if client.removed is not None:
            raise Removed(client.removed)
        if client.failure is not None:
            raise ConnectionLost(client.failure)
        if poller.poll(_LOOK_SECONDS * 1000):
            client.on_readable()
        now = time.monotonic()
        if now - looked > 2 * _LOOK_SECONDS:
            client.heard = now  # this process itself was stopped
        looked = now
        if now - client.heard > patience:
            raise LauncherGone(
                f"the launcher at {client.server} has not been heard for {patience:g} s "
                "(HOROVOD_ELASTIC_TIMEOUT): it is stopped or its host can't be reached"
            )
    try:
        return Assignment.from_message(client.assignment)
    except (KeyError, TypeError, ValueError) as error:
        raise LauncherGone(f"the launcher at {client.server} sent no valid place ({error!r})") from error
