"""A rank whose TCP connections go through someone in between, without its knowing: `relayed_rank.py port`.

The environment says what a launcher's would. The result is printed as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod._net.connector import Connector

RELAY = ("127.0.0.2", int(sys.argv[1]))
kind = ["rendezvous"]  # what the connection being made is for; the relay could guess it from the order


def divert() -> None:
    connect, attempt = socket.socket.connect, Connector._attempt

    def diverted(self: socket.socket, address: tuple[str, int]) -> int:
        self.settimeout(10)
        connect(self, RELAY)
        self.sendall(f"{address[0]} {address[1]} {kind[0]}\n".encode())
        return 0

    def noted(self: Connector) -> None:
        kind[0] = self._purpose
        attempt(self)

    socket.socket.connect = diverted  # type: ignore[assignment, method-assign]
    socket.socket.connect_ex = diverted  # type: ignore[assignment, method-assign]
    Connector._attempt = noted  # type: ignore[method-assign]


def work() -> str:
    hvd.init()
    several = [hvd.allreduce_async(np.ones(3), op=hvd.Sum, name=f"s{number}") for number in range(3)]
    assert all((hvd.synchronize(handle) == 2).all() for handle in several)
    for number in range(20):
        total = hvd.allreduce(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum, name=f"x{number}")
        assert (total == 3).all()
    text = "P" * 3000
    assert hvd.broadcast_object(text if hvd.rank() == 0 else None, 0) == text
    assert hvd.allgather_object(text) == [text] * 2
    for number in range(25):  # long enough for some heartbeats
        hvd.allreduce(np.ones(3), name=f"y{number}")
        hvd.broadcast_object(number, number % 2)
        time.sleep(0.06)
    hvd.shutdown()
    return "done"


divert()
try:
    print(json.dumps({"result": work()}))
except (hvd.HorovodInternalError, RuntimeError, ValueError) as error:
    print(json.dumps({"error": str(error)}), flush=True)
    # The end of a process is seen at once, but its last words may still be with the relay.
    time.sleep(1)
