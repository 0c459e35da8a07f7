"""Frames survive any cutting of the stream and refuse what is too large, not JSON or not the other end's."""

from __future__ import annotations

import hashlib
import socket
import time

import pytest

from horovod._net.frames import Body, Decoder, FrameError, FrameStream, Message, Sealer, encode
from horovod._net.handshake import Session

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


def frames(*messages: Message, key: bytes = KEY) -> list[bytes]:
    sealer = Sealer(key)
    return [sealer.head(body) + body.content for body in map(encode, messages)]


def test_any_cutting_of_the_stream() -> None:
    messages: list[Message] = [{"a": 1}, {}, {"text": "ü" * 300}]
    stream = b"".join(frames(*messages))
    for step in (1, 2, 3, 7, len(stream)):
        decoder = Decoder(KEY)
        received = []
        for start in range(0, len(stream), step):
            received += decoder.feed(stream[start : start + step])
        assert received == messages


@pytest.mark.parametrize("content", [b"[1]", b"1", b"{", b"\xff", b"[" * 100_000, b'{"a":NaN}'])
def test_not_an_object(content: bytes) -> None:
    body = Body(content, hashlib.sha256(content).digest())
    with pytest.raises(FrameError, match="does not hold"):
        Decoder(KEY).feed(Sealer(KEY).head(body) + content)


def test_too_large() -> None:
    with pytest.raises(FrameError, match="over the limit of 100"):
        Decoder(KEY, 100).feed((101).to_bytes(4, "big") + bytes(16))
    with pytest.raises(FrameError, match="over the limit of 10"):
        encode({"text": "0123456789"}, 10)


def test_no_changed_bit_passes() -> None:
    first, second = frames({"a": 1}, {"b": 2})
    for bit in range(8 * len(first)):
        changed = bytearray(first)
        changed[bit // 8] ^= 1 << bit % 8
        decoder = Decoder(KEY, 100)
        # A longer length waits for more; what then comes is not what belongs there.
        with pytest.raises(FrameError):
            assert decoder.feed(bytes(changed)) == []
            assert decoder.feed(second * 20) == []


def test_replays_gaps_other_orders_and_other_directions_do_not_pass() -> None:
    one, two, three = frames({"n": 1}, {"n": 2}, {"n": 3})
    for stream in (one + one, one + three, two + one, three, b"".join(frames({"n": 1}, key=OTHER_KEY))):
        with pytest.raises(FrameError, match="wrong authentication code"):
            Decoder(KEY).feed(stream)


def test_deadlines() -> None:
    near, far = socket.socketpair()
    with near, far:
        stream = FrameStream(near, Session(KEY, OTHER_KEY))
        other = FrameStream(far, Session(OTHER_KEY, KEY))
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            stream.receive(start + 0.1)
        with pytest.raises(TimeoutError):  # nobody reads
            stream.send({"text": "x" * (8 << 20)}, time.monotonic() + 0.1)
        other.send({"a": 1}, start + 60)
        other.send({"a": 2}, start + 60)
        assert [stream.receive(start + 60), stream.receive(start + 60)] == [{"a": 1}, {"a": 2}]
        far.close()
        with pytest.raises((EOFError, ConnectionResetError)):
            stream.receive(start + 60)
