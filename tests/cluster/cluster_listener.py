"""Listens to the wire: `cluster_listener.py interface pattern`, the pattern in hexadecimal digits.

Says "ready", and when its input ends how many packets went by, their bytes, and how many hold the pattern.
"""

from __future__ import annotations

import json
import select
import socket
import sys

_EVERYTHING = 3  # ETH_P_ALL


def main() -> None:
    interface, pattern = sys.argv[1], bytes.fromhex(sys.argv[2])
    counts = {"packets": 0, "bytes": 0, "seen": 0}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERYTHING)) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        wire.bind((interface, 0))
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([wire, sys.stdin], [], [])
            if wire in ready:
                packet = wire.recv(1 << 17)
                counts["packets"] += 1
                counts["bytes"] += len(packet)
                counts["seen"] += pattern in packet
            elif sys.stdin in ready:
                break
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
