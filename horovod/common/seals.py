"""What proves that an object comes from a rank of this world: no other is ever unpickled.

The data plane does not authenticate what it carries, and unpickling runs code. So every object has
a seal in front: an HMAC-SHA256 under a key of this world, which every rank derives and none sends,
over what the object is for, who sends it, its number, length and SHA-256. A seal that was seen
before is not accepted again.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import threading

_FIELDS = struct.Struct(
    "<?qQ32s"
)  # whether it is an object (else a text about an error), length, number, SHA-256
_CODE_BYTES = 16
SEAL_BYTES = _FIELDS.size + _CODE_BYTES
_WINDOW = 1024  # of a sender's objects, by so many numbers one may overtake another


class SealError(ValueError):
    """This is not what a rank of this world has sent."""


class Content:
    """What a valid seal says about the bytes that come with it."""

    __slots__ = ("_digest", "is_object", "length")

    def __init__(self, is_object: bool, length: int, digest: bytes) -> None:
        self.is_object = is_object
        self.length = length
        self._digest = digest

    def check(self, data: bytes | memoryview) -> None:
        """Raises SealError if these are not the bytes."""
        if len(data) != self.length or not hmac.compare_digest(hashlib.sha256(data).digest(), self._digest):
            raise SealError("the bytes of an object are not those that were sent")


class Seals:
    """Those of one world; may be used by several threads."""

    def __init__(self, key: bytes, rank: int) -> None:
        self._key = key
        self._rank = rank
        self._lock = threading.Lock()
        self._next = 0
        self._highest: dict[int, int] = {}  # by sender
        self._seen: dict[int, set[int]] = {}  # of the last _WINDOW numbers

    def make(self, purpose: str, is_object: bool, data: bytes) -> bytes:
        """The seal, of SEAL_BYTES. `purpose` is the same for sender and receivers."""
        with self._lock:
            number = self._next
            self._next += 1
        fields = _FIELDS.pack(is_object, len(data), number, hashlib.sha256(data).digest())
        return fields + self._code(purpose, self._rank, fields)

    def open(self, purpose: str, sender: int, seal: bytes) -> Content:
        """What the seal says; SealError if it is not the
        sender's, for something else, or not new."""
        fields, code = seal[: _FIELDS.size], seal[_FIELDS.size :]
        if not hmac.compare_digest(code, self._code(purpose, sender, fields)):
            raise SealError("the seal of an object is wrong")
        is_object, length, number, digest = _FIELDS.unpack(fields)
        with self._lock:
            highest = self._highest.get(sender, -1)
            seen = self._seen.setdefault(sender, set())
            if number <= highest - _WINDOW or number in seen:
                raise SealError("an object was sent a second time")
            seen.add(number)
            if number > highest:
                self._highest[sender] = number
                if len(seen) > 2 * _WINDOW:
                    seen.intersection_update(range(number - _WINDOW + 1, number + 1))
        return Content(is_object, length, digest)

    def _code(self, purpose: str, sender: int, fields: bytes) -> bytes:
        text = f"{purpose}\0{sender}\0".encode() + fields
        return hmac.digest(self._key, text, "sha256")[:_CODE_BYTES]
