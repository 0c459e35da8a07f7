"""Records of made-up jobs, as the core would write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from horovod.timeline import records as r
from horovod.timeline.records import Name, Part, Record

MS = 1_000_000
US = 1_000
START = 10**12


@dataclass
class Host:
    """A clock: its time at true time t is t * (1 + drift) + skew."""

    name: str
    skew: int = 0
    drift: float = 0.0

    def __call__(self, true: float) -> int:
        return int(true + self.drift * (true - START)) + self.skew


@dataclass
class Rank:
    """Writes one rank's records at true times."""

    rank: int
    size: int
    host: Host
    hosts: list[str]
    records: list[tuple[int, Record]] = field(default_factory=list)
    names: dict[int, Name] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    handles: int = 0
    cpu: int = 0
    waited: int = 0

    def name(self, text: str, mark: bool = False) -> int:
        if text not in self.numbers:
            number = self.numbers[text] = len(self.numbers) + 1
            self.names[number] = Name(text, mark, 255 if mark else 0, 255 if mark else 6, 1, (2, 3))
        return self.numbers[text]

    def add(self, true: float, kind: int, **fields: int) -> None:
        base = dict.fromkeys(("operation", "set", "generation", "name", "extra", "bytes", "argument"), 0)
        base.update(fields)
        base["argument"] %= 1 << 64
        time = self.host(true)
        self.records.append((time, Record(time=time, kind=kind, **base)))

    def part(self, transport: str = "shm") -> Part:
        header = {
            "version": 1,
            "rank": self.rank,
            "size": self.size,
            "local_rank": 0,
            "host": self.host.name,
            "pid": 4000 + self.rank,
            "hosts": self.hosts,
            "transport": transport,
            "world": 0,
            "time_ns": self.host(START),
            "epoch_ns": 1_800_000_000 * 10**9,
            "clock": "tsc",
        }
        ordered = [record for _, record in sorted(self.records, key=lambda item: item[0])]
        return Part(header, self.names, ordered)


@dataclass
class Job:
    """A training with blocking waits. Durations are ns.

    Each step: compute, then submit all tensors, then wait for all. `compute(rank, step)` tells how
    long; `transfer` is the time of one operation of `fused` tensors.
    """

    hosts: list[Host]  # of each rank
    steps: int = 60
    tensors: int = 4
    bytes: int = 1 << 20
    fused: int = 4
    transfer: int = 5 * MS
    control: int = 50 * US
    marks: bool = True  # step marks, as an optimizer writes them
    heartbeat: Callable[[int], int] | None = None  # one-way delays by number, ns
    compute: Callable[[int, int], int] = lambda rank, step: 40 * MS
    busy: Callable[[int, int], float] = lambda rank, step: 1.0  # share of the compute time with the CPU
    data: Callable[[int, int], int] = lambda rank, step: 0  # of the compute time, in a mark "data"
    names: Callable[[int, int], str] = lambda step, tensor: f"grad.{tensor}"
    transport: str = "shm"
    speeds: dict[str, int] = field(default_factory=dict)  # of the machines
    threads: int = 1  # that compute, while busy() is 1
    waited: Callable[[int, int], int] = lambda rank, step: 0  # for a processor, of the main thread
    processors: str = ""  # of each host
    quota: int = 0

    def parts(self) -> list[Part]:
        size = len(self.hosts)
        ranks = [Rank(n, size, host, [h.name for h in self.hosts]) for n, host in enumerate(self.hosts)]
        now = [float(START)] * size
        number = 0
        for step in range(self.steps):
            submitted: list[float] = []
            for rank in ranks:
                n = rank.rank
                loading = self.data(n, step)
                if loading:
                    mark = rank.name("data", True)
                    rank.add(now[n], r.MARK_BEGIN, name=mark, argument=1)
                    rank.add(now[n] + loading, r.MARK_END, name=mark, argument=1)
                length = self.compute(n, step)
                rank.cpu += int(length * self.busy(n, step) * self.threads)
                rank.waited += self.waited(n, step)
                now[n] += length
                submitted.append(now[n])
            handles: list[list[int]] = []
            for rank in ranks:
                mine: list[int] = []
                for tensor in range(self.tensors):
                    rank.handles += 1
                    mine.append(rank.handles)
                    name = rank.name(self.names(step, tensor))
                    at = submitted[rank.rank] + tensor * US
                    rank.add(at, r.SUBMIT, name=name, bytes=self.bytes, argument=rank.handles)
                    delay = 20 * US if rank.rank else 2 * US
                    vote = ranks[0].name(self.names(step, tensor))
                    ranks[0].add(at + delay, r.READY, name=vote, argument=rank.rank)
                handles.append(mine)
            everyone = max(submitted) + self.tensors * US + 25 * US
            begin = everyone + self.control
            ends: dict[int, float] = {}
            for first in range(0, self.tensors, self.fused):
                group = range(first, min(first + self.fused, self.tensors))
                number += 1
                for index, tensor in enumerate(group):
                    vote = ranks[0].name(self.names(step, tensor))
                    fields = {"operation": number, "name": vote, "argument": len(group), "extra": index}
                    ranks[0].add(everyone, r.RELEASE, **fields)
                end = begin + self.transfer
                for rank in ranks:
                    # Nobody ends before all have begun; they begin a little apart.
                    shift = rank.rank * 3 * US
                    total = self.bytes * len(group)
                    rank.add(begin + shift, r.RUN_BEGIN, operation=number, bytes=total, argument=len(group))
                    for tensor in group:
                        handle = handles[rank.rank][tensor]
                        name = rank.name(self.names(step, tensor))
                        fields = {"operation": number, "name": name, "bytes": self.bytes}
                        rank.add(begin + shift, r.TENSOR, argument=handle, **fields)
                        ends[tensor] = end
                    if self.transport == "hierarchical":
                        third = self.transfer // 3
                        for phase in (1, 2, 3):
                            at = begin + shift + (phase - 1) * third
                            fields = {"operation": number, "extra": phase, "bytes": total}
                            rank.add(at, r.PHASE, argument=third, **fields)
                    algorithm = 7 if self.transport == "hierarchical" else 2
                    rank.add(end + shift, r.RUN_END, operation=number, bytes=total, extra=algorithm)
                begin = end + self.control
            for rank in ranks:
                n = rank.rank
                at = submitted[n] + self.tensors * US
                for tensor, handle in enumerate(handles[n]):
                    name = rank.name(self.names(step, tensor))
                    done = ends[tensor] + n * 3 * US
                    if done > at:
                        rank.add(at, r.WAIT_BEGIN, name=name, argument=handle, extra=1)
                        rank.add(done, r.WAIT_END, name=name, argument=handle, extra=1)
                        at = done
                now[n] = at
                if self.marks:
                    mark = rank.name("step", True)
                    rank.add(now[n], r.STEP, name=mark, bytes=step + 1, argument=rank.cpu)
                rank.add(now[n], r.PROCESSOR, argument=rank.cpu, bytes=rank.waited)
        if self.heartbeat is not None:
            self._heartbeats(ranks, max(now))
        parts = [rank.part(self.transport) for rank in ranks]
        for part in parts:
            part.header.update(self.speeds, processors=self.processors, quota=self.quota)
        return parts

    def _heartbeats(self, ranks: list[Rank], end: float) -> None:
        assert self.heartbeat is not None
        zero = ranks[0].host
        for rank in ranks[1:]:
            at, number = float(START), rank.rank
            while at < end:
                out, back = self.heartbeat(number), self.heartbeat(number + 1)
                number += 2
                sent, arrived = rank.host(at), zero(at + out)
                answered, received = zero(at + out + 100 * MS), rank.host(at + out + 100 * MS + back)
                offset = ((arrived - sent) + (answered - received)) // 2
                trip = (received - sent) - (answered - arrived)
                fields = {"extra": 0, "argument": offset, "bytes": trip}
                rank.add(at + out + 100 * MS + back, r.CLOCK, **fields)
                at += 500 * MS
