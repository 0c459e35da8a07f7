"""Broadcast and gather of Python objects as pickled bytes.

They travel only between ranks that proved to be of this job when the world was built.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from horovod.common.arrays import Array, collectives
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.session import for_collective

_HEADER = struct.Struct("<?q")  # whether what follows is a pickle (else the text of an error), and its length


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object, on every rank of the set. The root gets its own back.

    Types need not agree: the other ranks' `obj` is ignored. If it can't be pickled, all ranks raise.
    """
    own = for_collective().place.rank == root_rank
    message, failure = _message(obj) if own else (b"", None)
    header = np.frombuffer(message[: _HEADER.size].ljust(_HEADER.size, b"\0"), np.uint8)
    header = _broadcast(header, root_rank, _part(name, "header"), process_set)
    ok, length = _HEADER.unpack(header.tobytes())
    payload = np.frombuffer(message, np.uint8, offset=_HEADER.size) if own else np.empty(length, np.uint8)
    payload = _broadcast(payload, root_rank, _part(name, "payload"), process_set)
    if failure is not None:
        raise failure
    if own:
        return obj
    return _content(ok, payload.tobytes(), root_rank)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order. If one can't be pickled, all ranks raise."""
    message, failure = _message(obj)
    full = None if name is None else f"object.{name}"
    handle = collectives.allgather([np.frombuffer(message, np.uint8)], full, process_set)
    gathered = memoryview(table.synchronize(handle))
    if failure is not None:
        raise failure
    objects: list[Any] = []
    ranks = process_set.ranks or ()
    offset = 0
    while offset < len(gathered):
        ok, length = _HEADER.unpack_from(gathered, offset)
        offset += _HEADER.size + length
        objects.append(_content(ok, gathered[offset - length : offset], ranks[len(objects)]))
    return objects


def _message(obj: Any) -> tuple[bytes, Exception | None]:
    # The other ranks wait for this one's bytes, so a failure is sent in place of the object.
    failure: Exception | None = None
    try:
        content = _pickler().dumps(obj)
    except Exception as error:
        failure = error
        content = f"{type(error).__name__}: {error}".encode()
    return _HEADER.pack(failure is None, len(content)) + content, failure


def _content(ok: bool, content: bytes | memoryview, rank: int) -> Any:
    if not ok:
        raise HorovodInternalError(
            f"rank {rank} could not pickle its object: {bytes(content).decode(errors='replace')}"
        )
    return _pickler().loads(content)


def _pickler() -> Any:
    import cloudpickle  # type: ignore[import-untyped]  # here: most programs never need it

    return cloudpickle


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"object.{name}.{part}"


def _broadcast(array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Array:
    result: Array = table.synchronize(collectives.broadcast(array, root_rank, name, process_set))
    return result
