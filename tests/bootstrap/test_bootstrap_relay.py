"""Someone on the way between two ranks passes everything on, and tries what can be done with that."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from bootstrap_ranks import KEY
from bootstrap_relay import Change, Relay, unchanged
from util_paths import ROOT, SUPPORT

from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod._net import handshake

RANK = SUPPORT / "relayed_rank.py"
# What is sent before the first frame.
FORTH_BYTES = handshake.TAG_BYTES + handshake.NONCE_BYTES + handshake.PROOF_BYTES
BACK_BYTES = len(handshake.MAGIC) + handshake.NONCE_BYTES + handshake.PROOF_BYTES


def run(change: Change, **settings: str) -> list[dict[str, str]]:
    """Two ranks with someone between them and between each of them and the server."""
    with RendezvousServer(KEY) as server, Relay(change=change) as relay:
        processes = []
        for rank in range(2):
            env = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": "2",
                "HOROVOD_LOCAL_RANK": str(rank),
                "HOROVOD_LOCAL_SIZE": "2",
                "HOROVOD_CROSS_RANK": "0",
                "HOROVOD_CROSS_SIZE": "1",
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
                "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server.port),
                "_HOROVOD_SECRET_KEY": KEY.hex(),
                "HOROVOD_TRANSPORT": "tcp",
                "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
                **settings,
            }
            words = [sys.executable, str(RANK), str(relay.address[1])]
            processes.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True))
        try:
            results = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        # Two to the server; if that worked, control, liveness and data.
        assert relay.connections == 5 or "error" in results[0]
    return results


def at(place: int, before: int, data: bytes) -> bool:
    """Whether the byte at `place` of the stream is in this piece of it."""
    return before <= place < before + len(data)


def test_passing_everything_on_is_not_noticed() -> None:
    assert run(unchanged) == [{"result": "done"}] * 2


@pytest.mark.parametrize("forth", [True, False])
@pytest.mark.parametrize("kind", ["rendezvous", "control", "liveness"])
def test_a_flipped_bit_ends_the_job(kind: str, forth: bool) -> None:
    place = (FORTH_BYTES if forth else BACK_BYTES) + 6

    def flip(what: str, towards: bool, before: int, data: bytes) -> bytes:
        if not what.startswith(kind) or towards != forth or not at(place, before, data):
            return data
        changed = bytearray(data)
        changed[place - before] ^= 1
        return bytes(changed)

    for result in run(flip):
        assert "wrong authentication code" in result["error"], result


class Meddler:
    """Holds the first frame of a connection back until there is a second one; then changes their order.

    Towards the rank if that asks the server, as it then waits for an answer; else towards rank 0.
    """

    def __init__(self, kind: str, order: Callable[[list[bytes]], list[bytes]]) -> None:
        self._kind = kind
        self._order = order
        self._forth = kind != "rendezvous"
        self._handshake = FORTH_BYTES if self._forth else BACK_BYTES
        self._held: dict[int, bytes | None] = {}  # by connection, each of which has a thread; None when done

    def __call__(self, what: str, towards: bool, before: int, data: bytes) -> bytes:
        me = threading.get_ident()
        held = self._held.get(me, b"")
        if not what.startswith(self._kind) or towards != self._forth or before < self._handshake:
            return data
        if held is None:
            return data
        held += data
        first = self._size(held)
        end = first + self._size(held[first:])
        if not first < end <= len(held):
            self._held[me] = held
            return b""
        self._held[me] = None
        return b"".join(self._order([held[:first], held[first:end]])) + held[end:]

    def _size(self, data: bytes) -> int:
        """Of the frame that begins here: length, content and code; 0 if that can't be told yet."""
        order: Literal["big", "little"] = "big" if self._kind == "rendezvous" else "little"
        return 4 + 16 + int.from_bytes(data[:4], order) if len(data) >= 4 else 0


ORDERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "repeated": lambda frames: [frames[0], *frames],
    "swapped": lambda frames: frames[::-1],
    "left out": lambda frames: frames[1:],
}


@pytest.mark.parametrize("kind", ["rendezvous", "control", "liveness"])
@pytest.mark.parametrize("order", ["repeated", "swapped", pytest.param("left out", marks=pytest.mark.slow)])
def test_frames_in_another_order_end_the_job(kind: str, order: str) -> None:
    for result in run(Meddler(kind, ORDERS[order])):
        assert "wrong authentication code" in result["error"], result


def test_encrypted_data_cannot_be_changed() -> None:
    def flip(what: str, towards: bool, before: int, data: bytes) -> bytes:
        place = BACK_BYTES + 1000
        if not what.startswith("mesh") or towards or not at(place, before, data):
            return data
        return data[: place - before] + bytes([data[place - before] ^ 1]) + data[place - before + 1 :]

    assert run(unchanged, HOROVOD_ENCRYPTION="data") == [{"result": "done"}] * 2
    for result in run(flip, HOROVOD_ENCRYPTION="data"):
        assert "the data from rank 0 has a wrong authentication code" in result["error"], result


class Exploit:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._marker}",)


def test_an_object_that_was_replaced_is_not_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    replaced = []

    def replace(what: str, towards: bool, before: int, data: bytes) -> bytes:
        start = data.find(b"\x80\x05\x95")
        if not what.startswith("mesh") or start < 0 or b"P" * 2000 not in data:
            return data
        exploit = pickle.dumps(Exploit(marker))
        replaced.append(exploit)
        return data[:start] + exploit + data[start + len(exploit) :]

    results = run(replace)
    assert replaced and not marker.exists()
    for result in results:
        assert "has not sent like this" in result["error"], result
