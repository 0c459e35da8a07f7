"""Broadcast and gather of Python objects as pickled
bytes, each with a seal that is checked before."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common.arrays import Array, collectives
from horovod.common.handles import table
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.seals import SEAL_BYTES, Content, SealError
from horovod.common.session import for_collective
from horovod.errors import HorovodInternalError


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's object, on every rank of the set. The root gets its own back.

    Types need not agree: the other ranks' `obj` is ignored. If it can't be pickled, all ranks
    raise.
    """
    own = for_collective().place.rank == root_rank
    purpose = _purpose("broadcast", name, process_set)
    seal, payload, failure = _sealed(purpose, obj) if own else (bytes(SEAL_BYTES), b"", None)
    header = np.frombuffer(seal, np.uint8)
    header = _broadcast(header, root_rank, _part(name, "header"), process_set)
    content = None if own else _opened(purpose, root_rank, header.tobytes())
    data = np.frombuffer(payload, np.uint8) if content is None else np.empty(content.length, np.uint8)
    data = _broadcast(data, root_rank, _part(name, "payload"), process_set)
    if failure is not None:
        raise failure
    return obj if content is None else _object(content, data.tobytes(), root_rank)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order. If one can't be pickled, all ranks raise."""
    purpose = _purpose("allgather", name, process_set)
    seal, payload, failure = _sealed(purpose, obj)
    full = None if name is None else f"object.{name}"
    handle = collectives.allgather([np.frombuffer(seal + payload, np.uint8)], full, process_set)
    gathered = memoryview(table.synchronize(handle))
    if failure is not None:
        raise failure
    objects: list[Any] = []
    offset = 0
    for rank in process_set.ranks or ():
        content = _opened(purpose, rank, bytes(gathered[offset : offset + SEAL_BYTES]))
        offset += SEAL_BYTES + content.length
        objects.append(_object(content, gathered[offset - content.length : offset], rank))
    return objects


def _purpose(kind: str, name: str | None, process_set: ProcessSet) -> str:
    return f"{kind} {process_set.process_set_id} {name}"


def _sealed(purpose: str, obj: Any) -> tuple[bytes, bytes, Exception | None]:
    # The other ranks wait for this one's bytes, so a failure is sent in place of the object.
    failure: Exception | None = None
    try:
        content = _pickler().dumps(obj)
    except Exception as error:
        failure = error
        content = f"{type(error).__name__}: {error}".encode()
    return for_collective().seals.make(purpose, failure is None, content), content, failure


def _opened(purpose: str, rank: int, seal: bytes) -> Content:
    try:
        return for_collective().seals.open(purpose, rank, seal)
    except SealError as error:
        raise _forged(rank, error) from None


def _object(content: Content, data: bytes | memoryview, rank: int) -> Any:
    try:
        content.check(data)
    except SealError as error:
        raise _forged(rank, error) from None
    if not content.is_object:
        raise HorovodInternalError(
            f"rank {rank} could not pickle its object: {bytes(data).decode(errors='replace')}"
        )
    return _pickler().loads(data)


def _forged(rank: int, error: SealError) -> HorovodInternalError:
    session = for_collective()
    text = (
        f"rank {session.place.rank} received an object that rank {rank} has not sent like this ({error}): "
        "someone in between has changed the data"
    )
    session.engine.abort(text)  # no rank may go on with data of unknown origin
    return HorovodInternalError(text)


def _pickler() -> Any:
    import cloudpickle  # type: ignore[import-untyped]  # here: most programs never need it

    return cloudpickle


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"object.{name}.{part}"


def _broadcast(array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Array:
    result: Array = table.synchronize(collectives.broadcast(array, root_rank, name, process_set))
    return result
