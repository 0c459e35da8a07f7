"""Accounts on two hosts that pass connections on: `cluster_relay.py namespace address port target change`

Listens at `address` and `port`, in the namespace that it is started in. With a rule that redirects (iptables)
that stands for listening on all ports. What comes goes on from host1, whose namespace is named, to the same
port of `target` there; or, if another address of host1 was meant, to the door there that belongs to the
same process. `change` is "nothing", or "frames": then a bit of what host1 says after the handshake is
flipped. Prints "ready", and for every line of input a line that counts what came.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from bootstrap_relay import Address, Relay, unchanged
from cluster_attacker import listening

HANDSHAKE_BYTES = 72  # what the accepting end says
_CLONE_NEWNET = 0x40000000
_SO_ORIGINAL_DST = 80


def meant(sock: socket.socket) -> Address:
    """Where a connection would have gone."""
    try:
        data = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    except OSError:
        host, port = sock.getsockname()
        return host, port
    port, host = struct.unpack_from("!H4s", data, 2)
    return socket.inet_ntoa(host), port


def flip(kind: str, forth: bool, before: int, data: bytes) -> bytes:
    if forth or before < HANDSHAKE_BYTES:
        return data
    return data[:-1] + bytes([data[-1] ^ 1])


def main() -> None:
    namespace, address, port, target, change = sys.argv[1:]

    def aim(sock: socket.socket) -> Address:
        host, door = meant(sock)
        there = [each for _, each in listening(os.getpid(), host)]
        other = [each for _, each in listening(os.getpid(), target)]
        if host == target or door not in there or len(other) != len(there):
            return target, door
        return target, other[there.index(door)]

    relay = Relay(aim, flip if change == "frames" else unchanged, (address, int(port)))
    with open(f"/run/netns/{namespace}") as file:  # for every socket that is made from now on
        if ctypes.CDLL(None).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise SystemExit("this process cannot get to host1")
    "load".encode("idna")  # the interpreter's files may be out of reach for that user
    os.setgid(12345)
    os.setuid(12345)
    with relay:
        print("ready", flush=True)
        for _ in sys.stdin:
            counts = {"connections": relay.connections, "ended": relay.ended, "passed": relay.most_passed}
            print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
