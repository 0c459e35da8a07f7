"""Frames survive any cutting of the stream and refuse what is too large or not JSON."""

from __future__ import annotations

import socket
import time

import pytest

from horovod._bootstrap.frames import Decoder, FrameError, FrameStream, Message, encode


def test_any_cutting_of_the_stream() -> None:
    messages: list[Message] = [{"a": 1}, {}, {"text": "ü" * 300}]
    stream = b"".join(encode(message) for message in messages)
    for step in (1, 2, 3, 7, len(stream)):
        decoder = Decoder()
        received = []
        for start in range(0, len(stream), step):
            received += decoder.feed(stream[start : start + step])
        assert received == messages


@pytest.mark.parametrize("body", [b"[1]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_not_an_object(body: bytes) -> None:
    with pytest.raises(FrameError):
        Decoder().feed(len(body).to_bytes(4, "big") + body)


def test_too_large() -> None:
    with pytest.raises(FrameError, match="over the limit of 100"):
        Decoder(100).feed((101).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="over the limit of 10"):
        encode({"text": "0123456789"}, 10)


def test_deadlines() -> None:
    near, far = socket.socketpair()
    with near, far:
        stream, other = FrameStream(near), FrameStream(far)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            stream.receive(start + 0.1)
        with pytest.raises(TimeoutError):  # nobody reads
            stream.send({"text": "x" * (8 << 20)}, time.monotonic() + 0.1)
        assert time.monotonic() - start < 2
        other.send({"a": 1}, start + 5)
        other.send({"a": 2}, start + 5)
        assert [stream.receive(start + 5), stream.receive(start + 5)] == [{"a": 1}, {"a": 2}]
        far.close()
        with pytest.raises((EOFError, ConnectionResetError)):
            stream.receive(start + 5)
