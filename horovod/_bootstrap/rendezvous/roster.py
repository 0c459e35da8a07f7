"""What every rank learns about all others, in a short form: it is sent to each of them."""

from __future__ import annotations

import binascii
import json
import zlib
from typing import Any

from horovod._net.frames import MAX_FRAME_BYTES, FrameError, Message


def pack(infos: list[Message]) -> str:
    """Names, addresses and namespaces repeat themselves, so it becomes a sixth."""
    packed = zlib.compress(json.dumps(infos, separators=(",", ":")).encode())
    return binascii.b2a_base64(packed, newline=False).decode()


def unpack(text: str) -> list[Message]:
    """The opposite; FrameError if it is something else, or too large."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(binascii.a2b_base64(text), MAX_FRAME_BYTES)
        infos: Any = json.loads(data)
    except (ValueError, zlib.error, RecursionError) as error:
        raise FrameError(f"the list of the ranks can't be read: {error}") from None
    if not isinstance(infos, list):
        raise FrameError("the list of the ranks is something else")
    return infos
