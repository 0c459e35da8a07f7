"""Part files: whole, torn, damaged, of several worlds."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from synthetic import Host, Job

from horovod.timeline.records import MAGIC, NAMES, PartError, read_parts, worlds, write_part
from horovod.timeline.trace import build


def test_a_part_file_is_read_as_it_was_written() -> None:
    part = Job([Host("a")], steps=3).parts()[0]
    data = write_part(part)
    (again,) = read_parts(data, "x")
    assert (again.names, again.records, again.torn) == (part.names, part.records, False)
    assert again.header == part.header


@pytest.mark.parametrize("cut", [1, 11, 12, 13, 40, 500])
def test_what_was_not_finished_is_ignored(cut: int) -> None:
    first, second = Job([Host("a")], steps=3).parts()[0], Job([Host("a")], steps=5).parts()[0]
    whole = write_part(first, complete=False)
    more = write_part(second, complete=False).removeprefix(MAGIC)
    parts = read_parts(whole + more[:-cut], "x")
    assert parts[0].records == first.records
    assert [part.torn for part in parts] == [True, True]
    assert parts[1].names == second.names and parts[1].records == []


def test_a_damaged_block_ends_the_file() -> None:
    part = Job([Host("a")], steps=3).parts()[0]
    data = bytearray(write_part(part))
    data[-200] ^= 1
    (damaged,) = read_parts(bytes(data), "x")
    assert damaged.torn and damaged.names == part.names


def test_other_files_are_refused() -> None:
    with pytest.raises(PartError, match="x is not a part file"):
        read_parts(b'[{"name": "process_name"', "x")
    with pytest.raises(PartError, match="begin with a header"):
        read_parts(MAGIC + struct.pack("<III", NAMES, 0, zlib.crc32(b"")), "x")
    header = json.dumps({"version": 9}).encode()
    with pytest.raises(PartError, match="version 9"):
        read_parts(MAGIC + struct.pack("<III", 1, len(header), zlib.crc32(header)) + header, "x")


def test_unknown_blocks_are_skipped() -> None:
    part = Job([Host("a")], steps=1).parts()[0]
    unknown = struct.pack("<III", 99, 3, zlib.crc32(b"abc")) + b"abc"
    for complete in (True, False):
        (again,) = read_parts(write_part(part, complete) + unknown, "x")
        assert again.records == part.records and again.torn is not complete


def test_worlds_are_told_apart_by_their_time() -> None:
    """A rank that came with the second world counts it as its first."""
    first, second = Job([Host("a")] * 2, steps=3).parts(), Job([Host("a")] * 3, steps=3).parts()
    for part in second:
        part.header["time_ns"] += 10**12
        part.header["epoch_ns"] += 10**12
        part.header["world"] = 0 if part.rank == 2 else 1
        part.records = [record._replace(time=record.time + 10**12) for record in part.records]
    found = worlds([second[2], *first, second[0], second[1]])
    assert [sorted(world) for world in found] == [[0, 1], [0, 1, 2]]
    assert found[1][2] is second[2] and found[0][0] is first[0]


def test_operations_waits_and_steps_are_found() -> None:
    parts = Job([Host("a")] * 2, steps=3, tensors=4, fused=2).parts()
    trace = build(parts[1])
    assert len(trace.operations) == 6 and len(trace.steps) == 3 and len(trace.waits) == 6
    operation = next(iter(trace.operations.values()))
    assert [tensor.name for tensor in operation.tensors] == ["grad.0", "grad.1"]
    assert operation.submit is not None and operation.end is not None
    assert operation.submit < operation.begin < operation.end
    assert all(wait.key in trace.operations for wait in trace.waits)
    arrival = build(parts[0]).arrivals[operation.key]
    assert sorted(arrival.ready) == [0, 1] and max(arrival.ready.values()) < arrival.release
    assert arrival.fused == 2
