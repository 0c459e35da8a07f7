"""Part files: what the core of one rank has recorded, as it lies in the file.

A part file is a magic word and blocks, each with its length and checksum. It may end before the last
one, or in the middle of one: then its rank was killed, and what came before counts. Numbers are
little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAGIC = b"HVDPART1"
HEADER, NAMES, RECORDS, END = 1, 2, 3, 4

SUBMIT, READY, RELEASE, RUN_BEGIN, TENSOR, RUN_END = range(1, 7)
PHASE, _, WAIT_BEGIN, WAIT_END, STEP = range(7, 12)
MARK_BEGIN, MARK_END, MARK, CLOCK, WORLD, CYCLE, FAILED, DROPPED, ABORT, PROCESSOR = range(12, 22)
FOLD, FOLD_TIME, FOLD_RANK = range(22, 25)
# Which time a FOLD_TIME sums up, by its `extra`; csrc/engine/record.h tells what they mean.
FOLD_TIMES = ("whole", "run", "flight", "before", "transfer", "after", "queue")

KINDS = (
    "ALLREDUCE",
    "ALLGATHER",
    "BROADCAST",
    "ALLTOALL",
    "REDUCESCATTER",
    "BARRIER",
    "JOIN",
    "ADD_PROCESS_SET",
    "REMOVE_PROCESS_SET",
)
# By the numbers of csrc/hvd.h.
DTYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "bool",
    "complex64",
    "complex128",
)
# By the numbers of csrc/comm/course.h, which tells what they mean; nothing: no data moved.
ALGORITHMS = ("", "once", "pipelined", "whole", "shared", "direct", "relayed", "hosts", "blocks", "in place")
PHASES = ("", "within the host", "network", "share out")
NETWORK = 2

_BLOCK = struct.Struct("<III")
_NAME = struct.Struct("<IBBBBHH")
_RECORD = struct.Struct("<QIHHIHHQQ")
_SIGN = 1 << 63


class Record(NamedTuple):
    """One record. Times are nanoseconds of the host's monotonic clock."""

    time: int
    operation: int  # the n-th of its process set, from 1; 0: none
    set: int
    generation: int
    name: int
    kind: int
    extra: int
    bytes: int
    argument: int

    @property
    def signed(self) -> int:
        """The argument of kinds where it may be negative."""
        return self.argument - (1 << 64) if self.argument >= _SIGN else self.argument


class Name(NamedTuple):
    """What a number stands for: an operation's name with its first tensor, or a mark."""

    text: str
    is_mark: bool = False
    kind: int = 0
    dtype: int = 255
    tensors: int = 1
    shape: tuple[int, ...] = ()


@dataclass
class Part:
    """What one rank has recorded in one world."""

    header: dict[str, Any]
    names: dict[int, Name] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    dropped: int = 0
    reason: str = ""  # of the abort that ended it
    torn: bool = False  # it has no end: its rank was killed

    @property
    def rank(self) -> int:
        return int(self.header["rank"])

    @property
    def host(self) -> str:
        return str(self.header["host"])


class PartError(ValueError):
    """A file is not what it should be; the text says what it is instead."""


def read_parts(data: bytes, source: str) -> list[Part]:
    """The worlds of a part file in their order. PartError if it is none at all."""
    if not data.startswith(MAGIC):
        raise PartError(f"{source} is not a part file of a timeline")
    parts: list[Part] = []
    at = len(MAGIC)
    while at < len(data):
        block = _block(data, at)
        if block is None:
            if parts:
                parts[-1].torn = True
            break
        kind, payload, at = block
        if kind == HEADER:
            header = json.loads(payload)
            if header.get("version") != 1:
                raise PartError(f"{source} has version {header.get('version')}, this program reads version 1")
            parts.append(Part(header, torn=True))
        elif not parts:
            raise PartError(f"{source} does not begin with a header")
        elif kind == NAMES:
            parts[-1].names.update(_names(payload))
        elif kind == RECORDS:
            whole = len(payload) - len(payload) % _RECORD.size
            parts[-1].records.extend(map(Record._make, _RECORD.iter_unpack(payload[:whole])))
        elif kind == END:
            end = json.loads(payload)
            parts[-1].dropped, parts[-1].reason = int(end.get("dropped", 0)), str(end.get("reason", ""))
            parts[-1].torn = False
    return parts


def write_part(part: Part, complete: bool = True) -> bytes:
    """The bytes of a part file: for tests, and to hand records on."""
    blocks = [
        (HEADER, json.dumps({"version": 1, **part.header}).encode()),
        (NAMES, b"".join(_name_bytes(number, name) for number, name in part.names.items())),
        (RECORDS, b"".join(_RECORD.pack(*record) for record in part.records)),
    ]
    if complete:
        blocks.append((END, json.dumps({"dropped": part.dropped, "reason": part.reason}).encode()))
    return MAGIC + b"".join(
        _BLOCK.pack(kind, len(payload), zlib.crc32(payload)) + payload for kind, payload in blocks
    )


def _block(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    if at + _BLOCK.size > len(data):
        return None
    kind, length, checksum = _BLOCK.unpack_from(data, at)
    begin = at + _BLOCK.size
    payload = data[begin : begin + length]
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    return kind, payload, begin + length


def _names(payload: bytes) -> Iterator[tuple[int, Name]]:
    at = 0
    while at < len(payload):
        number, what, kind, dtype, ndim, tensors, length = _NAME.unpack_from(payload, at)
        at += _NAME.size
        shape = struct.unpack_from(f"<{ndim}q", payload, at)
        at += 8 * ndim
        text = payload[at : at + length].decode(errors="replace")
        at += length
        yield number, Name(text, what == 1, kind, dtype, tensors, shape)


def _name_bytes(number: int, name: Name) -> bytes:
    text = name.text.encode()
    head = _NAME.pack(
        number, int(name.is_mark), name.kind, name.dtype, len(name.shape), name.tensors, len(text)
    )
    return head + struct.pack(f"<{len(name.shape)}q", *name.shape) + text


def worlds(parts: Iterable[Part]) -> list[dict[int, Part]]:
    """The parts by world and rank: the generations of an elastic job in their order."""
    generations: dict[int, list[Part]] = {}
    for part in parts:
        generations.setdefault(int(part.header.get("generation", 0)), []).append(part)
    return [world for number in sorted(generations) for world in _worlds(generations[number])]


def _worlds(everyone: list[Part]) -> list[dict[int, Part]]:
    """Those of one launch of the processes.

    A process counts only its own worlds, and one that came later began at zero. So each part goes
    to that of rank 0's whose time, by the wall clocks, it shares most.
    """
    firsts = sorted((part for part in everyone if part.rank == 0), key=lambda part: _span(part)[0])
    if not firsts:  # rank 0's file is missing: the rest as it is
        by_number: dict[int, dict[int, Part]] = {}
        for part in everyone:
            by_number.setdefault(int(part.header.get("world", 0)), {})[part.rank] = part
        return [by_number[number] for number in sorted(by_number)]
    result: list[dict[int, Part]] = [{0: part} for part in firsts]
    spans = [_span(part) for part in firsts]
    for part in everyone:
        if part.rank == 0:
            continue
        begin, end = _span(part)
        shared = [
            (part.header.get("size") == first.header.get("size"), min(end, last) - max(begin, start))
            for first, (start, last) in zip(firsts, spans, strict=True)
        ]
        result[max(range(len(firsts)), key=shared.__getitem__)][part.rank] = part
    return result


def _span(part: Part) -> tuple[int, int]:
    shift = epoch_shift(part.header)
    last = part.records[-1].time if part.records else int(part.header["time_ns"])
    return int(part.header["time_ns"]) + shift, last + shift


def epoch_shift(header: Mapping[str, Any]) -> int:
    """What to add to a host's monotonic clock for nanoseconds since 1970, by its own wall clock."""
    return int(header["epoch_ns"]) - int(header["time_ns"])
