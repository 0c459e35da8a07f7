"""JSON objects with a length in front, on a connection that has been authenticated."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

Message = dict[str, Any]

MAX_FRAME_BYTES = 16 << 20  # the description of a world of tens of thousands of ranks
_LENGTH = struct.Struct("!I")
_CHUNK_BYTES = 1 << 16


class FrameError(ValueError):
    """The other end sent something that is not a frame, or a frame is too large."""


def encode(message: Message, limit: int = MAX_FRAME_BYTES) -> bytes:
    """The bytes of a frame; FrameError if the message is larger than `limit` bytes."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > limit:
        raise FrameError(f"a message of {len(body)} bytes is over the limit of {limit}")
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Cuts a stream of bytes into messages. Holds at most one incomplete frame of `limit` bytes."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`; raises FrameError."""
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            if length > self._limit:
                raise FrameError(f"a frame of {length} bytes is over the limit of {self._limit}")
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(_decode(bytes(self._buffer[start + _LENGTH.size : end])))
            start = end
        del self._buffer[:start]
        return messages


def _decode(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame does not hold JSON: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a frame does not hold a JSON object")
    return message


class FrameStream:
    """Frames over a socket, made non-blocking; it stays the caller's. Deadlines are time.monotonic()."""

    def __init__(self, sock: socket.socket, limit: int = MAX_FRAME_BYTES) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._limit = limit
        self._decoder = Decoder(limit)
        self._ready: list[Message] = []

    def send(self, message: Message, deadline: float) -> None:
        """Sends all of it, or raises TimeoutError, FrameError or OSError and leaves the stream unusable."""
        left = memoryview(encode(message, self._limit))
        while left:
            try:
                left = left[self._sock.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def receive(self, deadline: float) -> Message:
        """The next message; TimeoutError, EOFError if the other end closed, FrameError or OSError."""
        while not self._ready:
            self._ready += self.receive_available()
            if not self._ready:
                self._wait(select.POLLIN, deadline)
        return self._ready.pop(0)

    def receive_available(self) -> list[Message]:
        """The messages that one read completes, without waiting; EOFError if the other end closed."""
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
