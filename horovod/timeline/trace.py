"""From records to what happened: operations, waits, steps and marks of one rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from horovod.timeline import records as r
from horovod.timeline.records import Name, Part, Record


class Key(NamedTuple):
    """An operation's identity: the same on all members of its process set."""

    set: int
    generation: int
    number: int


class Tensor(NamedTuple):
    """A tensor of an operation on this rank; ``submit`` is None if its rank had joined."""

    name: str
    bytes: int
    submit: int | None
    calls_back: bool = False  # when it is done: no thread waits for it


@dataclass
class Operation:
    """One operation as this rank ran it."""

    key: Key
    kind: int
    bytes: int
    begin: int
    end: int | None = None  # None: it did not end
    algorithm: int = 0
    code: int = 0
    tensors: list[Tensor] = field(default_factory=list)
    phases: list[tuple[int, int, int, int]] = field(default_factory=list)  # phase, begin, end, bytes

    @property
    def submit(self) -> int | None:
        """When the last of its tensors was submitted here."""
        return max((tensor.submit for tensor in self.tensors if tensor.submit is not None), default=None)

    @property
    def calls_back(self) -> bool:
        """Whether it does so for one of its tensors."""
        return any(tensor.calls_back for tensor in self.tensors)


@dataclass
class Arrival:
    """What the coordinator saw of one operation, by rank 0's clock."""

    release: int
    fused: int
    # For each rank when its last tensor of the operation arrived
    ready: dict[int, int] = field(default_factory=dict)


class Wait(NamedTuple):
    """An application thread was blocked for an operation."""

    begin: int
    end: int
    thread: int
    name: str
    key: Key | None  # None: it never ran


class Step(NamedTuple):
    """The end of a step of the training."""

    time: int
    number: int
    cpu: int  # processor time of the process until then, ns


class ProcessorSample(NamedTuple):
    """What all threads of the process have used of the processors until then, and how long the main
    one had to wait for a processor; ns."""

    time: int
    cpu: int
    waited: int


class Mark(NamedTuple):
    """What the user has named; ``end`` equals ``begin`` for an instant."""

    name: str
    begin: int
    end: int
    thread: int


class ClockSample(NamedTuple):
    """A measurement of the clock of rank 0's host: its time = ``time`` + ``offset``."""

    time: int
    offset: int
    round_trip: int


class FoldedRank(NamedTuple):
    """What rank 0 knows of a rank in a fold; ns."""

    last: int  # in how many of the operations it was the last
    waited: int  # for the last one
    caused: int  # what the others waited for it, together


@dataclass
class Fold:
    """Small operations of one name that this rank waited for one after the other."""

    key: Key  # of the first; the others have the numbers that follow
    count: int
    name: str
    kind: int
    algorithm: int
    bytes: int  # of each
    begin: int  # of the first
    end: int  # of the last
    sums: dict[str, int] = field(default_factory=dict)  # of FOLD_TIMES; ns
    longest: int = 0  # of them
    ranks: dict[int, FoldedRank] = field(default_factory=dict)  # rank 0 only

    @property
    def exposed(self) -> int:
        """In which the application was blocked."""
        return sum(self.sums.get(each, 0) for each in ("before", "transfer", "after"))


@dataclass
class RankTrace:
    """What one rank did."""

    rank: int
    host: str
    pid: int
    first: int  # time of the first and the last record
    last: int
    operations: dict[Key, Operation] = field(default_factory=dict)
    folds: list[Fold] = field(default_factory=list)  # of operations that are not among the others
    submits: list[tuple[int, str, int]] = field(default_factory=list)  # time, name, bytes
    waits: list[Wait] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    clock: list[ClockSample] = field(default_factory=list)
    processor: list[ProcessorSample] = field(default_factory=list)
    arrivals: dict[Key, Arrival] = field(default_factory=dict)  # rank 0 only
    names: dict[str, Name] = field(default_factory=dict)
    dropped: int = 0
    reason: str = ""
    torn: bool = False
    copy_speed: int = 0  # bytes a second from memory to memory; 0: not known
    link_speed: int = 0  # bits a second of its host's fastest interface; 0: not known
    processors: frozenset[int] = frozenset()  # that it may use; none: not known
    quota: int = 0  # what its cgroup may use of them; 0: all

    @property
    def count(self) -> int:
        """Of the operations, folded or not."""
        return len(self.operations) + sum(fold.count for fold in self.folds)


class _Builder:
    def __init__(self, part: Part) -> None:
        self._part = part
        header = part.header
        begin = int(header["time_ns"])
        self.trace = RankTrace(
            part.rank,
            part.host,
            int(header["pid"]),
            part.records[0].time if part.records else begin,
            part.records[-1].time if part.records else begin,
            names={name.text: name for name in part.names.values()},
            dropped=part.dropped,
            reason=part.reason,
            torn=part.torn,
            copy_speed=int(header.get("copy_speed", 0)),
            link_speed=int(header.get("link_speed", 0)),
            processors=_numbers(str(header.get("processors", ""))),
            quota=int(header.get("quota", 0)),
        )
        self._submitted: dict[int, tuple[int, bool]] = {}  # by handle: when, and does it call back?
        self._running: Operation | None = None
        self._operation_of: dict[int, Key] = {}  # by handle
        self._blocked: dict[int, tuple[Record, Key | None]] = {}  # by handle
        self._marks: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._votes: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)

    def build(self) -> RankTrace:
        handlers = {
            r.SUBMIT: self._submit,
            r.READY: self._ready,
            r.RELEASE: self._release,
            r.RUN_BEGIN: self._run_begin,
            r.TENSOR: self._tensor,
            r.RUN_END: self._run_end,
            r.PHASE: self._phase,
            r.WAIT_BEGIN: self._wait_begin,
            r.WAIT_END: self._wait_end,
            r.STEP: self._step,
            r.MARK_BEGIN: self._mark_begin,
            r.MARK_END: self._mark_end,
            r.MARK: self._mark,
            r.CLOCK: self._clock,
            r.DROPPED: self._dropped,
            r.PROCESSOR: self._processor,
            r.FOLD: self._fold,
            r.FOLD_TIME: self._fold_time,
            r.FOLD_RANK: self._fold_rank,
        }
        for record in self._part.records:
            handler = handlers.get(record.kind)
            if handler is not None:
                handler(record)
        for record, key in self._blocked.values():  # a rank that was killed while it waited
            self.trace.waits.append(Wait(record.time, self.trace.last, record.extra, self._text(record), key))
        self.trace.waits.sort()
        return self.trace

    def _text(self, record: Record) -> str:
        name = self._part.names.get(record.name)
        return "" if name is None else name.text

    @staticmethod
    def _key(record: Record) -> Key:
        return Key(record.set, record.generation, record.operation)

    def _submit(self, record: Record) -> None:
        self._submitted[record.argument] = (record.time, record.operation == 1)
        self._operation_of.pop(record.argument, None)  # handles are used again
        self.trace.submits.append((record.time, self._text(record), record.bytes))

    def _ready(self, record: Record) -> None:
        # The first vote counts until the release; a later one is for the next time.
        self._votes[record.set, record.name].setdefault(record.argument, record.time)

    def _release(self, record: Record) -> None:
        key = self._key(record)
        arrival = self.trace.arrivals.setdefault(key, Arrival(record.time, record.argument))
        arrival.release = max(arrival.release, record.time)
        votes = self._votes.pop((record.set, record.name), {})
        for rank, time in votes.items():
            arrival.ready[rank] = max(arrival.ready.get(rank, 0), time)

    def _run_begin(self, record: Record) -> None:
        self._running = Operation(self._key(record), record.extra, record.bytes, record.time)
        self.trace.operations[self._running.key] = self._running

    def _tensor(self, record: Record) -> None:
        key = self._key(record)
        operation = self.trace.operations.get(key)
        if operation is None:
            return
        submit, calls_back = self._submitted.pop(record.argument, (None, False))
        operation.tensors.append(Tensor(self._text(record), record.bytes, submit, calls_back))
        if record.argument:
            self._operation_of[record.argument] = key
            blocked = self._blocked.get(record.argument)
            if blocked is not None:
                self._blocked[record.argument] = (blocked[0], key)

    def _run_end(self, record: Record) -> None:
        operation = self.trace.operations.get(self._key(record))
        if operation is not None:
            operation.end, operation.algorithm, operation.code = record.time, record.extra, record.signed

    def _phase(self, record: Record) -> None:
        operation = self.trace.operations.get(self._key(record))
        if operation is not None:
            operation.phases.append((record.extra, record.time, record.time + record.argument, record.bytes))

    def _wait_begin(self, record: Record) -> None:
        self._blocked[record.argument] = (record, self._operation_of.get(record.argument))

    def _wait_end(self, record: Record) -> None:
        blocked = self._blocked.pop(record.argument, None)
        if blocked is not None:
            begin, key = blocked
            self.trace.waits.append(Wait(begin.time, record.time, begin.extra, self._text(begin), key))

    def _step(self, record: Record) -> None:
        self.trace.steps.append(Step(record.time, record.bytes, record.argument))

    def _mark_begin(self, record: Record) -> None:
        self._marks[record.name, record.argument].append(record.time)

    def _mark_end(self, record: Record) -> None:
        begun = self._marks[record.name, record.argument]
        if begun:
            self.trace.marks.append(Mark(self._text(record), begun.pop(), record.time, record.argument))

    def _mark(self, record: Record) -> None:
        self.trace.marks.append(Mark(self._text(record), record.time, record.time, record.argument))

    def _clock(self, record: Record) -> None:
        if record.extra == 0:
            self.trace.clock.append(ClockSample(record.time, record.signed, record.bytes))

    def _dropped(self, record: Record) -> None:
        if self.trace.torn:  # otherwise the end of the file tells the sum
            self.trace.dropped += record.argument

    def _processor(self, record: Record) -> None:
        self.trace.processor.append(ProcessorSample(record.time, record.argument, record.bytes))

    def _fold(self, record: Record) -> None:
        count, length = record.argument >> 32, record.argument & 0xFFFFFFFF
        algorithm, kind = record.extra >> 8, record.extra & 0xFF
        about = (self._key(record), count, self._text(record), kind, algorithm, record.bytes)
        self.trace.folds.append(Fold(*about, record.time, record.time + length))

    def _fold_time(self, record: Record) -> None:
        if self.trace.folds and record.extra < len(r.FOLD_TIMES):
            which = r.FOLD_TIMES[record.extra]
            self.trace.folds[-1].sums[which] = record.bytes
            if which == "whole":
                self.trace.folds[-1].longest = record.argument

    def _fold_rank(self, record: Record) -> None:
        if self.trace.folds:
            known = FoldedRank(record.operation, record.bytes, record.argument)
            self.trace.folds[-1].ranks[record.extra] = known


def _numbers(text: str) -> frozenset[int]:
    """Those of a list as "0-3,8"."""
    ranges = [piece.split("-") for piece in text.split(",") if piece]
    return frozenset(number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1))


def build(part: Part) -> RankTrace:
    """What a rank did, by its own clock."""
    return _Builder(part).build()
