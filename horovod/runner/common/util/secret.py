"""Keys of jobs, and digests of messages made with them (HMAC-SHA-256)."""

from __future__ import annotations

import hmac
import secrets

from horovod._net.handshake import KEY_BYTES
from horovod.runner.plan.environment import SECRET as HOROVOD_SECRET_KEY

__all__ = ["DIGEST_LENGTH", "HOROVOD_SECRET_KEY", "check_digest", "compute_digest", "make_secret_key"]

DIGEST_LENGTH = 32


def make_secret_key() -> bytes:
    """A new key, in the digits that the variable named by ``HOROVOD_SECRET_KEY`` holds."""
    return secrets.token_hex(KEY_BYTES).encode()


def compute_digest(key: bytes, message: bytes) -> bytes:
    """``DIGEST_LENGTH`` bytes that only the owners of the key can make."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether the digest is that of the message."""
    return hmac.compare_digest(compute_digest(key, message), digest)
