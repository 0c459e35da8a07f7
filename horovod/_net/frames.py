"""JSON objects in frames that only the two ends of an authenticated connection can make.

A frame is the length of the JSON, a code of 16 bytes, and the JSON. The code is an HMAC-SHA256
under the direction's key of the session, over the number of the frame, which both ends count, and
the JSON's SHA-256: a frame that was changed, repeated, left out, moved or sent back to its sender
does not have the right one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import select
import socket
import struct
import time
from typing import Any, NamedTuple

from horovod._net.handshake import Session

Message = dict[str, Any]

MAX_FRAME_BYTES = 16 << 20  # the description of a world of tens of thousands of ranks
_HEAD = struct.Struct("!I16s")  # length and code
_NUMBERED = struct.Struct("!Q32s")
_CHUNK_BYTES = 1 << 16


class FrameError(ValueError):
    """What arrived is not a frame, or one that is too large or not the other end's."""


class Body(NamedTuple):
    """A message as bytes, which may be sent to several receivers."""

    content: bytes
    digest: bytes


def encode(message: Message, limit: int = MAX_FRAME_BYTES) -> Body:
    """What a frame carries; FrameError if the message is larger than `limit` bytes."""
    content = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(content) > limit:
        raise FrameError(f"a message of {len(content)} bytes is over the limit of {limit}")
    return Body(content, hashlib.sha256(content).digest())


class Sealer:
    """Makes the codes of one direction of a connection, in the order of its frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def code(self, digest: bytes) -> bytes:
        """That of the next frame."""
        text = _NUMBERED.pack(self._number, digest)
        self._number += 1
        return hmac.digest(self._key, text, "sha256")[:16]

    def head(self, body: Body) -> bytes:
        """What comes before the body in the next frame."""
        return _HEAD.pack(len(body.content), self.code(body.digest))


class Decoder:
    """Cuts a stream of bytes into messages. Holds at most one incomplete frame of `limit` bytes.

    `key` is the one that the other end sends with.
    """

    def __init__(self, key: bytes, limit: int = MAX_FRAME_BYTES) -> None:
        self._sealer = Sealer(key)
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`; raises FrameError."""
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while len(self._buffer) - start >= _HEAD.size:
            length, code = _HEAD.unpack_from(self._buffer, start)
            if length > self._limit:
                raise FrameError(f"a frame of {length} bytes is over the limit of {self._limit}")
            end = start + _HEAD.size + length
            if len(self._buffer) < end:
                break
            content = bytes(self._buffer[start + _HEAD.size : end])
            if not hmac.compare_digest(code, self._sealer.code(hashlib.sha256(content).digest())):
                raise FrameError(
                    "a frame has a wrong authentication code: someone in between has changed, repeated or "
                    "left out something"
                )
            messages.append(_decode(content))
            start = end
        del self._buffer[:start]
        return messages


def _decode(content: bytes) -> Message:
    try:
        message = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame does not hold JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a frame does not hold a JSON object")
    return message


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")  # neither smaller nor larger than any deadline


class FrameStream:
    """Frames over a socket, made non-blocking; it stays the caller's.

    Deadlines are time.monotonic().
    """

    def __init__(self, sock: socket.socket, session: Session, limit: int = MAX_FRAME_BYTES) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._limit = limit
        self._sealer = Sealer(session.send)
        self._decoder = Decoder(session.receive, limit)
        self._ready: list[Message] = []

    def send(self, message: Message, deadline: float) -> None:
        """Sends all of it; TimeoutError, FrameError or OSError leave the stream unusable."""
        body = encode(message, self._limit)
        left = memoryview(self._sealer.head(body) + body.content)
        while left:
            try:
                left = left[self._sock.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def receive(self, deadline: float) -> Message:
        """The next message. TimeoutError, FrameError, OSError; EOFError if the other end closed."""
        while not self._ready:
            self._ready += self.receive_available()
            if not self._ready:
                self._wait(select.POLLIN, deadline)
        return self._ready.pop(0)

    def receive_available(self) -> list[Message]:
        """The messages that one read completes, without waiting; EOFError at the end."""
        try:
            data = self._sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError("the other end closed the connection")
        return self._decoder.feed(data)

    def _wait(self, events: int, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the other end did not answer in time")
        poller = select.poll()
        poller.register(self._sock, events)
        poller.poll(remaining * 1000)
