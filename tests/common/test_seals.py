"""An object counts only if a rank of this world has sealed it for this very purpose, and only once."""

from __future__ import annotations

import pytest

from horovod.common.seals import SEAL_BYTES, SealError, Seals

KEY = b"k" * 32


def test_what_was_sealed_can_be_opened_by_the_others() -> None:
    seal = Seals(KEY, 3).make("broadcast 0 x", True, b"data")
    assert len(seal) == SEAL_BYTES
    content = Seals(KEY, 0).open("broadcast 0 x", 3, seal)
    assert content.is_object and content.length == 4
    content.check(b"data")
    for other in (b"dato", b"data!", b""):
        with pytest.raises(SealError):
            content.check(other)


@pytest.mark.parametrize(
    ("key", "purpose", "sender"),
    [(b"o" * 32, "p", 3), (KEY, "q", 3), (KEY, "p", 2)],
)
def test_another_key_purpose_or_sender(key: bytes, purpose: str, sender: int) -> None:
    seal = Seals(KEY, 3).make("p", True, b"data")
    with pytest.raises(SealError, match="wrong"):
        Seals(key, 0).open(purpose, sender, seal)


def test_no_changed_bit_passes() -> None:
    seal = Seals(KEY, 3).make("p", True, b"data")
    for bit in range(8 * SEAL_BYTES):
        changed = bytearray(seal)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError):
            Seals(KEY, 0).open("p", 3, bytes(changed))
    for wrong in (b"", seal[:-1], seal + b"x"):
        with pytest.raises(SealError):
            Seals(KEY, 0).open("p", 3, wrong)


def test_nothing_is_accepted_twice_and_threads_may_overtake_each_other() -> None:
    sender, receiver = Seals(KEY, 1), Seals(KEY, 0)
    seals = [sender.make("p", True, b"%d" % number) for number in range(5000)]
    for first in range(0, len(seals), 100):
        for seal in reversed(seals[first : first + 100]):
            receiver.open("p", 1, seal)
    for seal in seals:
        with pytest.raises(SealError, match="second time"):
            receiver.open("p", 1, seal)
