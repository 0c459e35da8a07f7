"""Mutual authentication of two ends of a stream socket that share the job key.

Three messages of fixed size, so nothing has to be parsed before the proof has been checked:

    acceptor  -> initiator   magic, acceptor's nonce
    initiator -> acceptor    tag of purpose, initiator's nonce, HMAC(key, "initiator" | about)
    acceptor  -> initiator   HMAC(key, "acceptor" | about)

    about = both nonces | purpose | place

Both nonces are fresh, so a recorded handshake is useless; the role labels differ, so a proof can't
be reflected; the purpose (for example "<world>|control|3|0") says what the connection is for, so
one can't be passed off as another. The tag, a keyed hash of the purpose, only tells the acceptor
which one to check; it costs a stranger's connection one lookup, however many are expected. The
acceptor proves nothing to a stranger.

The place is the address and port that the initiator connected to. The acceptor compares it with its
own listener, so a relay that listens at another address is refused. Where the address may be
translated on the way (a name that the user gave) the initiator leaves it empty. The initiator's own
address is in no proof: it may be translated anywhere, and the purpose says who it is.

A relay that passes on every byte unchanged goes unnoticed but learns nothing: both ends have
derived the keys of a Session, one for each direction, and what they send from then on is
authenticated with them.

The two sides are plain state machines; `Authentication` moves their bytes.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from horovod._net.addresses import usual_form

KEY_BYTES = 32
NONCE_BYTES = 32
PROOF_BYTES = 32
TAG_BYTES = 16
MAGIC = b"HVDAUTH2"
REFUSAL = bytes(
    PROOF_BYTES
)  # instead of a proof: lets an honest peer with a wrong key fail at once with a reason


class AuthenticationError(Exception):
    """The other end doesn't have the job key, or talks about something else."""


class ConnectionDropped(ConnectionError):
    """The connection ended before the handshake did.

    A crowded acceptor does that; trying again may help.
    """


def check_key(key: bytes) -> bytes:
    """Returns `key`, or raises ValueError if it isn't a job key."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the job key must have {KEY_BYTES} bytes, not {len(key)}")
    return key


@dataclass(frozen=True)
class Session:
    """The keys of one connection, which only its two ends know."""

    send: bytes = field(repr=False)  # must not end up in a log
    receive: bytes = field(repr=False)

    def part(self, name: str) -> Session:
        """Other keys, for what is said over the connection before or after something else: each part
        counts its frames from zero, so none may be taken for one of another.
        """
        label = MAGIC + _PART + name.encode()
        return Session(hmac.digest(self.send, label, "sha256"), hmac.digest(self.receive, label, "sha256"))


# Of equal length, so that different inputs can't run together to the same text.
_INITIATOR = b"initiator"
_ACCEPTOR = b"acceptor "
_TAG = b"purpose  "
_FROM_INITIATOR = b"from init"
_FROM_ACCEPTOR = b"from acce"
_PART = b"part     "


def purpose_tag(key: bytes, purpose: str) -> bytes:
    """What names a purpose in a handshake. Says nothing to those without the key."""
    return hmac.digest(key, MAGIC + _TAG + purpose.encode(), "sha256")[:TAG_BYTES]


def place_of(address: object) -> str:
    """What a proof says of the address of a listener, as in getsockname().

    Empty for names, since a listener does not know what it is called, and for Unix sockets: nobody
    else can take their names, and the kernel tells who is at the other end.
    """
    if not isinstance(address, tuple):
        return ""
    try:
        return f"{usual_form(address[0].partition('%')[0])} {address[1]}"
    except ValueError:
        return ""


def world_key(key: bytes, scope: str, token: str) -> bytes:
    """The key of one world: a job's own may come again if the user has chosen it."""
    return hmac.digest(key, "\0".join(("horovod world key", scope, token)).encode(), "sha256")


def _about(acceptor_nonce: bytes, initiator_nonce: bytes, purpose: str, place: str) -> bytes:
    return acceptor_nonce + initiator_nonce + f"{purpose}\0{place}".encode()


def _derived(key: bytes, label: bytes, about: bytes) -> bytes:
    """A proof or a key: each label has its own, and none tells anything of another."""
    return hmac.digest(key, MAGIC + label + about, "sha256")


class Side(Protocol):
    """One end of a handshake without I/O."""

    wanted: int  # size of the next message from the other end; 0 = done
    session: Session | None  # when done
    refusal: bytes  # what to send when receive() raises AuthenticationError

    def start(self) -> bytes:
        """What to send first."""

    def receive(self, message: bytes) -> bytes:
        """Takes exactly `wanted` bytes, returns what to send; raises AuthenticationError."""


class Acceptor:
    """The end that was connected to.

    `expected` maps purpose_tag() to purpose and is looked at when the proof arrives, so the caller
    may change it. `place` is place_of() the listener.
    """

    refusal = REFUSAL

    def __init__(self, key: bytes, expected: Mapping[bytes, str], place: str = "") -> None:
        self._key = check_key(key)
        self._expected = expected
        self._place = place
        self._nonce = os.urandom(NONCE_BYTES)
        self.wanted = TAG_BYTES + NONCE_BYTES + PROOF_BYTES
        self.purpose = ""
        self.session: Session | None = None

    def start(self) -> bytes:
        return MAGIC + self._nonce

    def receive(self, message: bytes) -> bytes:
        purpose = self._expected.get(message[:TAG_BYTES])
        nonce, proof = message[TAG_BYTES:-PROOF_BYTES], message[-PROOF_BYTES:]
        # Whether the place is in the proof is the initiator's to know: nobody else can make either.
        for place in (self._place, "") if purpose is not None else ():
            about = _about(self._nonce, nonce, purpose or "", place)
            if hmac.compare_digest(proof, _derived(self._key, _INITIATOR, about)):
                break
        else:
            raise AuthenticationError("a connection did not prove that it knows the job key")
        self.purpose = purpose or ""
        self.session = Session(
            send=_derived(self._key, _FROM_ACCEPTOR, about),
            receive=_derived(self._key, _FROM_INITIATOR, about),
        )
        self.wanted = 0
        return _derived(self._key, _ACCEPTOR, about)


class Initiator:
    """The end that connects.

    `place` is place_of() the address, if the acceptor knows itself by that.
    """

    refusal = b""

    def __init__(self, key: bytes, purpose: str, place: str = "") -> None:
        self._key = check_key(key)
        self.purpose = purpose
        self._place = place
        self._nonce = os.urandom(NONCE_BYTES)
        self._about = b""
        self.wanted = len(MAGIC) + NONCE_BYTES
        self.session: Session | None = None

    def start(self) -> bytes:
        return b""

    def receive(self, message: bytes) -> bytes:
        if not self._about:
            if not message.startswith(MAGIC):
                raise AuthenticationError("what answers there is not part of a job of this Horovod version")
            self._about = _about(message[len(MAGIC) :], self._nonce, self.purpose, self._place)
            self.wanted = PROOF_BYTES
            proof = _derived(self._key, _INITIATOR, self._about)
            return purpose_tag(self._key, self.purpose) + self._nonce + proof
        if hmac.compare_digest(message, REFUSAL):
            raise AuthenticationError(
                "the other end refused: it belongs to another job (its job key differs), or someone at this "
                "address passes connections on"
            )
        if not hmac.compare_digest(message, _derived(self._key, _ACCEPTOR, self._about)):
            raise AuthenticationError("the other end could not prove that it knows the job key")
        self.session = Session(
            send=_derived(self._key, _FROM_INITIATOR, self._about),
            receive=_derived(self._key, _FROM_ACCEPTOR, self._about),
        )
        self.wanted = 0
        return b""


class Authentication:
    """Drives one side over a socket, made non-blocking.

    The caller watches readability and the time.
    """

    def __init__(self, sock: socket.socket, side: Side) -> None:
        self.sock = sock
        self._side = side
        self._received = bytearray()
        sock.setblocking(False)
        self._send(side.start())

    def advance(self) -> Session | None:
        """Reads what is there and answers; the session when done.

        Never reads a byte beyond the handshake. Raises AuthenticationError, or OSError if the
        connection failed.
        """
        side = self._side
        while side.wanted:
            try:
                data = self.sock.recv(side.wanted - len(self._received))
            except BlockingIOError:
                return None
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
        return side.session

    def _send(self, data: bytes) -> None:
        # A handshake's few bytes always fit in a fresh socket's buffer, so there is nothing to wait
        # for.
        try:
            if data and self.sock.send(data) != len(data):
                raise ConnectionDropped("the connection does not take a handshake message")
        except BlockingIOError:
            raise ConnectionDropped("the connection does not take a handshake message") from None


def authenticate(sock: socket.socket, side: Side, deadline: float) -> Session:
    """Runs a whole handshake; `deadline` (time.monotonic) holds however slowly the bytes drip in.

    Raises AuthenticationError, TimeoutError or OSError. The socket is non-blocking afterwards.
    """
    authentication = Authentication(sock, side)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    while (session := authentication.advance()) is None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("authentication did not finish in time")
        poller.poll(remaining * 1000)
    return session
