"""What is sent when ranks start, and how long the rendezvous server's logic takes for it: no sockets, but the
real classes and messages.

python scripts/scaling_start.py 4096 8    # hosts, ranks of each
"""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from horovod._bootstrap.rendezvous.membership import Membership, Outgoing
from horovod._bootstrap.rendezvous.protocol import HOST, MEET, READY
from horovod._bootstrap.rendezvous.roster import ranges_of
from horovod._bootstrap.world.tree import asked_by, parents_of
from horovod._net.frames import Message, encode

_HEAD_BYTES = 20  # of a frame


@dataclass(frozen=True)
class Sent:
    """Bytes."""

    to_first: int  # from the server to rank 0
    to_other: float  # to another rank, the mean
    to_all: int
    passed_on: int  # of the list of ranks, by the rank that has the most below it


def _random(what: str) -> str:
    """So many hexadecimal digits, as hard to compress as random ones and always the same."""
    return hashlib.md5(what.encode(), usedforsecurity=False).hexdigest()


def _info(rank: int, host: int, offers: bool) -> Message:
    """The numbers differ as those of real processes do, so that the list is as hard to compress."""
    info = {
        "host": f"node{host:05}.example",
        "pid": 10_000 + rank * 7919 % 50_000,
        "pid_namespace": f"{uuid.UUID(_random(f'boot {host}'))} pid:[4026531836]",
        "tcp": [[f"10.{host // 256}.{host % 256}.1", 32_768 + rank * 7907 % 28_000]],
    }
    return {**info, "unix": f"horovod-{_random(f'unix {rank}')}"} if offers else info


def _join(rank: int, size: int, info: Message) -> Message:
    times = {"timeout": 60.0, "remaining": 60.0, "peer_timeout": 10.0}
    agree = {"the version of horovod": "1"}
    place = {"host": info["host"], "pid": info["pid"]}
    return {"type": "join", "scope": "s", "rank": rank, "size": size, "agree": agree, **times, **place}


def _distinct(messages: Iterable[Outgoing]) -> Iterable[Outgoing]:
    return {id(out.message): out for out in messages}.values()


def start(places: Sequence[int], asked: Callable[..., Iterable[int]] = asked_by) -> Sent:
    """Of ranks whose hosts have these numbers, from the first join to the last answer."""
    size, parents = len(places), parents_of(places)
    below: list[list[int]] = [[] for _ in places]
    for rank in range(1, size):
        below[parents[rank]].append(rank)
    first = {host: rank for rank, host in reversed([*enumerate(places)])}
    infos = [_info(rank, host, bool(below[rank])) for rank, host in enumerate(places)]
    membership = Membership()
    received = [0] * size
    packed = ""  # the list of all, as rank 0 gets it and passes it on

    def send(messages: Sequence[Outgoing]) -> None:
        nonlocal packed
        # The same object for several ranks is encoded once, as the server does.
        lengths = {id(out.message): len(encode(out.message).content) for out in _distinct(messages)}
        for out in messages:
            assert out.message["type"] != "error", out.message
            received[out.client] += _HEAD_BYTES + lengths[id(out.message)]
            if out.client == 0:
                packed = out.message.get("values", packed)

    for rank in range(size):
        send(membership.join(rank, _join(rank, size, infos[rank]), 0.0))
    for stage in (MEET, HOST, READY):
        for rank, host in enumerate(places):
            share: Message = {"type": "share", "stage": stage}
            if stage == MEET:
                ranks = asked(rank, size, first[host], [parents[rank], *below[rank]])
                share |= {"value": infos[rank], "of": [list(each) for each in ranges_of(ranks)]}
            send(membership.share(rank, share, 0.0))
    assert membership.idle
    most = max(map(len, below)) * (_HEAD_BYTES + len(encode({"ranks": packed}).content))
    return Sent(received[0], sum(received[1:]) / (size - 1), sum(received), most)


if __name__ == "__main__":
    hosts, local = map(int, sys.argv[1:])
    began = time.process_time()
    print(start([host for host in range(hosts) for _ in range(local)]))
    print(f"{time.process_time() - began:.1f} s of processor, with what the ranks say")
