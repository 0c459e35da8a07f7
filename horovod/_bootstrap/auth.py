"""Mutual authentication of two ends of a stream socket that share the job key.

Three messages of fixed size, so nothing has to be parsed before the proof has been checked:

    acceptor  -> initiator   magic, acceptor's nonce
    initiator -> acceptor    tag of purpose, initiator's nonce, HMAC(key, "initiator" | both nonces | purpose)
    acceptor  -> initiator   HMAC(key, "acceptor" | both nonces | purpose)

Both nonces are fresh, so a recorded handshake is useless; the role labels differ, so a proof can't be
reflected; the purpose (for example "<world>|control|3|0") says what the connection is for, so one can't be
passed off as another. The tag, a keyed hash of the purpose, only tells the acceptor which one to check; it
costs a stranger's connection one lookup, however many are expected. The acceptor proves nothing to a
stranger. The two sides are plain state machines; `Authentication` moves their bytes.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import time
from collections.abc import Mapping
from typing import Protocol

KEY_BYTES = 32
NONCE_BYTES = 32
PROOF_BYTES = 32
TAG_BYTES = 16
MAGIC = b"HVDAUTH1"
REFUSAL = bytes(
    PROOF_BYTES
)  # instead of a proof: lets an honest peer with a wrong key fail at once with a reason


class AuthenticationError(Exception):
    """The other end doesn't have the job key, or talks about something else."""


class ConnectionDropped(ConnectionError):
    """The connection ended before the handshake did. A crowded acceptor does that; trying again may help."""


def check_key(key: bytes) -> bytes:
    """Returns `key`, or raises ValueError if it isn't a job key."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the job key must have {KEY_BYTES} bytes, not {len(key)}")
    return key


# Of equal length, so that different inputs can't run together to the same text.
_INITIATOR = b"initiator"
_ACCEPTOR = b"acceptor "
_TAG = b"purpose  "


def purpose_tag(key: bytes, purpose: str) -> bytes:
    """What names a purpose in a handshake. Says nothing to those without the key."""
    return hmac.digest(key, MAGIC + _TAG + purpose.encode(), "sha256")[:TAG_BYTES]


def _proof(key: bytes, role: bytes, acceptor_nonce: bytes, initiator_nonce: bytes, purpose: str) -> bytes:
    text = MAGIC + role + acceptor_nonce + initiator_nonce + purpose.encode()
    return hmac.digest(key, text, "sha256")


class Side(Protocol):
    """One end of a handshake without I/O."""

    wanted: int  # size of the next message from the other end; 0 = done
    refusal: bytes  # what to send when receive() raises AuthenticationError

    def start(self) -> bytes:
        """What to send first."""

    def receive(self, message: bytes) -> bytes:
        """Takes exactly `wanted` bytes, returns what to send; raises AuthenticationError."""


class Acceptor:
    """The end that was connected to.

    `expected` maps purpose_tag() to purpose and is looked at when the proof arrives, so the caller may change
    it.
    """

    refusal = REFUSAL

    def __init__(self, key: bytes, expected: Mapping[bytes, str]) -> None:
        self._key = check_key(key)
        self._expected = expected
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self.wanted = TAG_BYTES + NONCE_BYTES + PROOF_BYTES
        self.purpose = ""

    def start(self) -> bytes:
        return MAGIC + self._nonce

    def receive(self, message: bytes) -> bytes:
        purpose = self._expected.get(message[:TAG_BYTES])
        nonce, proof = message[TAG_BYTES:-PROOF_BYTES], message[-PROOF_BYTES:]
        if purpose is None or not hmac.compare_digest(
            proof, _proof(self._key, _INITIATOR, self._nonce, nonce, purpose)
        ):
            raise AuthenticationError("a connection did not prove that it knows the job key")
        self.purpose = purpose
        self.wanted = 0
        return _proof(self._key, _ACCEPTOR, self._nonce, nonce, purpose)


class Initiator:
    """The end that connects."""

    refusal = b""

    def __init__(self, key: bytes, purpose: str) -> None:
        self._key = check_key(key)
        self.purpose = purpose
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._acceptor_nonce = b""
        self.wanted = len(MAGIC) + NONCE_BYTES

    def start(self) -> bytes:
        return b""

    def receive(self, message: bytes) -> bytes:
        if not self._acceptor_nonce:
            if not message.startswith(MAGIC):
                raise AuthenticationError("what answers there is not part of a job of this Horovod version")
            self._acceptor_nonce = message[len(MAGIC) :]
            self.wanted = PROOF_BYTES
            proof = _proof(self._key, _INITIATOR, self._acceptor_nonce, self._nonce, self.purpose)
            return purpose_tag(self._key, self.purpose) + self._nonce + proof
        if hmac.compare_digest(message, REFUSAL):
            raise AuthenticationError(
                "the other end refused: it belongs to another job (its job key differs)"
            )
        expected = _proof(self._key, _ACCEPTOR, self._acceptor_nonce, self._nonce, self.purpose)
        if not hmac.compare_digest(message, expected):
            raise AuthenticationError("the other end could not prove that it knows the job key")
        self.wanted = 0
        return b""


class Authentication:
    """Drives one side over a socket, made non-blocking. The caller watches readability and the time."""

    def __init__(self, sock: socket.socket, side: Side) -> None:
        self.sock = sock
        self._side = side
        self._received = bytearray()
        sock.setblocking(False)
        self._send(side.start())

    def advance(self) -> bool:
        """Reads what is there and answers; True when done.

        Never reads a byte beyond the handshake. Raises AuthenticationError, or OSError if the connection
        failed.
        """
        side = self._side
        while side.wanted:
            try:
                data = self.sock.recv(side.wanted - len(self._received))
            except BlockingIOError:
                return False
            if not data:
                raise ConnectionDropped("the connection was closed during authentication")
            self._received += data
            if len(self._received) < side.wanted:
                continue
            message = bytes(self._received)
            self._received.clear()
            try:
                self._send(side.receive(message))
            except AuthenticationError:
                self._send(side.refusal)
                raise
        return True

    def _send(self, data: bytes) -> None:
        # A handshake's few bytes always fit in a fresh socket's buffer, so there is nothing to wait for.
        try:
            if data and self.sock.send(data) != len(data):
                raise ConnectionDropped("the connection does not take a handshake message")
        except BlockingIOError:
            raise ConnectionDropped("the connection does not take a handshake message") from None


def authenticate(sock: socket.socket, side: Side, deadline: float) -> None:
    """Runs a whole handshake; `deadline` (time.monotonic) holds however slowly the bytes drip in.

    Raises AuthenticationError, TimeoutError or OSError. The socket is non-blocking afterwards.
    """
    authentication = Authentication(sock, side)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while not authentication.advance():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("authentication did not finish in time")
        poller.poll(remaining * 1000)
