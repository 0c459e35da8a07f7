"""Random changes to handshakes and frames on their way: refused, and never anything but refused.

The C++ side of the frames has csrc/tests/fuzz_wire.cc.
"""

from __future__ import annotations

import random

import pytest

from horovod._net.frames import Decoder, FrameError, Message, Sealer, encode
from horovod._net.handshake import (
    Acceptor,
    AuthenticationError,
    Initiator,
    Session,
    Side,
    purpose_tag,
)

KEY = bytes(range(32))
PURPOSES = ("rendezvous", "control|1|0", "liveness|1|0", "mesh|1|0")
EXPECTED = {purpose_tag(KEY, purpose): purpose for purpose in PURPOSES}
PLACE = "192.0.2.1 5000"


def changed(data: bytes, dice: random.Random) -> bytes:
    """Something else of the same length: what the ends read has a fixed size."""
    other = bytearray(data)
    while bytes(other) == data:
        kind = dice.randrange(4)
        at = dice.randrange(len(data))
        if kind == 0:
            other[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            other[at:] = dice.randbytes(len(data) - at)
        elif kind == 2:
            other[:] = bytes(len(data))
        else:  # parts change places
            other = other[at:] + other[:at]
    return bytes(other)


def shake(dice: random.Random, wrong: int, recorded: list[list[bytes]]) -> list[Session | None]:
    """A handshake of which message `wrong` (0 to 2) is replaced; the sessions of both ends.

    `recorded` are the messages of handshakes that went well: some replacements come from there.
    """
    initiator: Side = Initiator(KEY, dice.choice(PURPOSES), dice.choice((PLACE, "")))
    acceptor: Side = Acceptor(KEY, EXPECTED, PLACE)
    messages = []
    sides = (initiator, acceptor, initiator)
    message = acceptor.start()
    for number, side in enumerate(sides):
        messages.append(message)
        if number == wrong:
            old = [each[number] for each in recorded if each[number] != message]
            message = dice.choice(old) if old and dice.randrange(2) else changed(message, dice)
        assert len(message) == side.wanted
        try:
            message = side.receive(message)
        except AuthenticationError:
            break
    if wrong > 2:
        recorded.append(messages)
    return [initiator.session, acceptor.session]


@pytest.mark.parametrize("rounds", [3000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_handshakes(rounds: int) -> None:
    dice = random.Random(rounds)
    recorded: list[list[bytes]] = []
    for _ in range(20):
        initiator, acceptor = shake(dice, 3, recorded)
        assert initiator is not None and acceptor is not None and initiator.send == acceptor.receive
    for _ in range(rounds):
        wrong = dice.randrange(3)
        initiator, acceptor = shake(dice, wrong, recorded)
        assert initiator is None
        # The last message is the acceptor's own: it is done then, with somebody who has the key.
        assert (acceptor is not None) == (wrong == 2)


def tamper(frames: list[bytes], dice: random.Random) -> list[bytes]:
    """What someone in between can do: change, cut, lengthen, repeat, leave out, swap, send from elsewhere."""
    result = list(frames)
    at, other = dice.randrange(len(frames)), dice.randrange(len(frames))
    kind = dice.randrange(7)
    if kind == 0:
        result.insert(at, frames[other])
    elif kind == 1:
        del result[at]
    elif kind == 2:
        result[at], result[other] = result[other], result[at]
    elif kind == 3:
        result[at] = frames[at][: dice.randrange(len(frames[at]))]
    elif kind == 4:
        result[at] += dice.randbytes(dice.randrange(1, 40))
    elif kind == 5:
        stranger = Sealer(dice.randbytes(32))
        result[at] = sealed(stranger, {"type": "world", "token": "mine"})
    else:
        result[at] = changed(frames[at], dice)
    return result


def sealed(sealer: Sealer, message: Message) -> bytes:
    body = encode(message)
    return sealer.head(body) + body.content


@pytest.mark.parametrize("rounds", [3000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_frames(rounds: int) -> None:
    dice = random.Random(rounds)
    refused = 0
    for _ in range(rounds):
        key = dice.randbytes(32)
        sealer, decoder = Sealer(key), Decoder(key, 1 << 14)
        sent: list[Message] = [{"n": n, "t": "x" * dice.randrange(60)} for n in range(dice.randrange(1, 6))]
        stream = b"".join(tamper([sealed(sealer, message) for message in sent], dice))
        arrived: list[Message] = []
        try:
            while stream:
                cut = dice.randrange(1, len(stream) + 1)
                piece, stream = stream[:cut], stream[cut:]
                arrived += decoder.feed(piece)
        except FrameError:
            refused += 1
        assert arrived == sent[: len(arrived)]
    assert refused > rounds / 3
