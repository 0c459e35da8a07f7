"""What all ranks of a world must have in common. A pure function."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import horovod
from horovod._bootstrap.rendezvous.protocol import PROTOCOL
from horovod._bootstrap.topology import VARIABLE


def terms(
    transport: str,
    encryption: str,
    streams: int,
    groups: Sequence[int] | None,
    process_sets: Sequence[Sequence[int]],
) -> dict[str, str]:
    """Each thing by its name in an error message, short enough to be compared and recognised."""
    return {
        "the rendezvous protocol": str(PROTOCOL),
        "the version of horovod": horovod.__version__,
        "the transport": transport,
        "HOROVOD_ENCRYPTION": encryption,
        "HOROVOD_STREAMS_PER_PEER": str(streams),
        VARIABLE: _bounded(json.dumps(groups)),
        "the list of process sets": _bounded(json.dumps([sorted(ranks) for ranks in process_sets])),
    }


def _bounded(text: str) -> str:
    """`text`, or its beginning and a hash."""
    if len(text) <= 300:
        return text
    return f"{text[:200]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"
