"""What ranks learn about others, in a short form. Pure functions."""

from __future__ import annotations

import binascii
import itertools
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from horovod._net.frames import MAX_FRAME_BYTES, FrameError

Ranges = tuple[tuple[int, int], ...]  # the first rank of each and how many, ascending and apart

_MOST_PACKED = MAX_FRAME_BYTES - (1 << 16)  # the rest is for what is around it in a frame


def pack(items: Sequence[Any]) -> str:
    """Names, addresses and namespaces repeat themselves, so it becomes a sixth.

    FrameError if it is too large to be sent, or unpacked.
    """
    data = json.dumps(items, separators=(",", ":")).encode()
    packed = binascii.b2a_base64(zlib.compress(data), newline=False).decode()
    if max(len(data), len(packed)) > _MOST_PACKED:
        raise FrameError(f"a list of {len(data)} bytes about the ranks is over the limit of {_MOST_PACKED}")
    return packed


def unpack(text: str) -> list[Any]:
    """The opposite; FrameError if it is something else, or too large."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(binascii.a2b_base64(text), MAX_FRAME_BYTES)
        items: Any = json.loads(data)
    except (ValueError, zlib.error, RecursionError) as error:
        raise FrameError(f"the list of the ranks can't be read: {error}") from None
    if not isinstance(items, list):
        raise FrameError("the list of the ranks is something else")
    return items


def pack_hosts(names: Sequence[str]) -> str:
    """Which ranks share a host: the steps from the number of each rank's host to the next one's.

    They repeat themselves where ranks are placed by a rule, so thousands become a line.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    hosts = [numbers[name] for name in names]
    return pack([after - before for before, after in itertools.pairwise([0, *hosts])])


def unpack_hosts(text: str, size: int) -> list[int]:
    """The number of each rank's host, from 0 in order of appearance; FrameError."""
    steps = unpack(text)
    if len(steps) != size or not all(isinstance(step, int) for step in steps):
        raise FrameError(f"the hosts of the ranks are not those of {size} ranks")
    return list(itertools.accumulate(steps))


def ranges_of(ranks: Iterable[int]) -> Ranges:
    """Those of a set of ranks."""
    found: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        first, count = found[-1] if found else (0, 0)
        if found and first + count == rank:
            found[-1] = first, count + 1
        else:
            found.append((rank, 1))
    return tuple(found)


def ranks_of(ranges: Ranges) -> Iterable[int]:
    """The opposite."""
    return itertools.chain.from_iterable(range(first, first + count) for first, count in ranges)


def checked(ranges: Any, size: int) -> Ranges:
    """Ranges that somebody asks for; ValueError if they are none, or of ranks that are not there."""
    if not isinstance(ranges, list):
        raise ValueError(f"{str(ranges)[:40]!r} are no ranks")
    found: list[tuple[int, int]] = []
    end = 0
    for each in ranges:
        if not isinstance(each, list) or [type(part) for part in each] != [int, int]:
            raise ValueError(f"{str(each)[:40]!r} are no ranks")
        first, count = each
        # One that is asked for twice would be sent twice.
        if first < end or count < 1 or first + count > size:
            raise ValueError(f"ranks {first} to {first + count - 1} of {size} are not to be asked for here")
        end = first + count
        found.append((first, count))
    return tuple(found)
