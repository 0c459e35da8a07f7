"""Started by horovodrun, or by a scheduler that sets the same variables by hand."""

from __future__ import annotations

from collections.abc import Mapping

from horovod._bootstrap.identity import variables
from horovod._bootstrap.identity.base import Identity
from horovod._bootstrap.identity.variables import (
    ADDRESS,
    ADDRESSES,
    CROSS_RANK,
    CROSS_SIZE,
    LOCAL_RANK,
    LOCAL_SIZE,
    RANK,
    SECRET,
    SIZE,
    host_name,
    rank_and_size,
)
from horovod._net.addresses import usual_form
from horovod._net.handshake import KEY_BYTES


class Horovodrun:
    """All numbers, the rendezvous and the key are in the environment."""

    @staticmethod
    def detect(environ: Mapping[str, str]) -> Identity | None:
        if RANK not in environ:
            return None
        rank, size = rank_and_size(environ, RANK, SIZE, f"{RANK} and {SIZE} go together: set both or neither")
        if size == 1:
            return Identity(rank, 1, 0, 1, 0, 1, host_name(environ))
        because = f"a job of {size} ranks needs it ({SIZE})"
        local_rank, local_size = rank_and_size(environ, LOCAL_RANK, LOCAL_SIZE, because)
        cross_rank, cross_size = rank_and_size(environ, CROSS_RANK, CROSS_SIZE, because)
        for name, value in ((LOCAL_SIZE, local_size), (CROSS_SIZE, cross_size)):
            if value > size:
                raise ValueError(f"{name}={value} must not be above {SIZE}={size}")
        if local_rank > rank:
            raise ValueError(f"{LOCAL_RANK}={local_rank} is larger than {RANK}={rank}")
        return Identity(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            host=host_name(environ),
            rendezvous=(variables.text(environ, ADDRESS, because), variables.port(environ, because)),
            addresses=addresses_of(environ),
            key=key_of(environ, because),
        )


def addresses_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in environ.get(ADDRESSES, "").split(",") if word.strip())
    for word in words:
        try:
            usual_form(word)
        except ValueError as error:
            raise ValueError(f"{ADDRESSES}: {error}") from None
    return words


def key_of(environ: Mapping[str, str], because: str) -> bytes:
    digits = variables.text(environ, SECRET, because)
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:  # without the value: it is a secret
        raise ValueError(f"{SECRET} must be {2 * KEY_BYTES} hexadecimal digits")
    return key
