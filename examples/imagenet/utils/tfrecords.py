"""TFRecord files without TensorFlow: records, tf.train.Example messages, and directories of shards.

The preparation of a data set only copies bytes and looks at images, so it need not start TensorFlow in each
of its processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

try:
    import google_crc32c
except ImportError:
    sys.exit("TFRecord files have checksums: pip install google-crc32c")

Feature: TypeAlias = (
    "bytes | str | int | Sequence[int] | array[float]"  # an array says its type even when empty
)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative number is its two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _feature(value: Feature) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _field(1, _field(1, value))
    values = [value] if isinstance(value, int) else value
    if isinstance(values, array):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(map(_varint, map(int, values)))))


def example(features: Mapping[str, Feature]) -> bytes:
    """A serialized tf.train.Example: text and bytes, whole numbers, or array('f')."""
    entries = [
        _field(1, _field(1, name.encode()) + _field(2, _feature(value)))
        for name, value in sorted(features.items())
    ]
    return _field(1, b"".join(entries))


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """One record as it stands in the file."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to that becomes `path` if all goes well and vanishes if not.

    So a file that has its final name is complete, whenever the program was stopped.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_shard(path: Path, examples: Iterable[bytes]) -> None:
    """Writes a file of records, or nothing."""
    with whole_file(path) as partial, partial.open("wb") as file:
        for data in examples:
            file.write(record(data))


def shard_name(subset: str, index: int, count: int) -> str:
    """For example train-00000-of-01024."""
    return f"{subset}-{index:05d}-of-{count:05d}"


def claim(directory: Path, subset: str, ingredients: Iterable[str], overwrite: bool) -> None:
    """Makes sure that the shards in a directory were, and will be, made from the same ingredients.

    Continuing with other images, or with another number of shards, would mix two data sets: then this exits,
    or with `overwrite` removes the shards that are there.
    """
    digest = hashlib.sha256("\n".join(ingredients).encode()).hexdigest()
    note = directory / f".{subset}.made-from"
    directory.mkdir(parents=True, exist_ok=True)
    shards = list(directory.glob(f"{subset}-[0-9]*-of-[0-9]*"))
    known = note.read_text() if note.exists() else None
    if shards and known != digest:
        if not overwrite:
            sys.exit(
                f"{directory} has {len(shards)} shards of '{subset}' that were made from other images or "
                "with other settings. Name another output directory, or start over with --overwrite"
            )
        for shard in shards:
            shard.unlink()
    with whole_file(note) as partial:
        partial.write_text(digest)
