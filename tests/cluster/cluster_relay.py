"""Another account on a host of the job, or on another one: `cluster_relay.py pid`.

Rank 0, whose network namespace is that of `pid`, has told the others all its addresses. One of them,
172.17.0.1, this host has as well, so here one may listen on the same ports and pass on what comes. The ports
are looked up in /proc, which is shared here; a real attacker would listen on all, and scan. Prints "ready"
when all that rank 0 has are taken, and counts what came when its input ends.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bootstrap_relay import Relay
from cluster_attacker import listening

SHARED, REAL = "172.17.0.1", "192.0.2.1"
DOORS = 2  # of rank 0: the rendezvous, and where other ranks connect


def main() -> None:
    victim = int(sys.argv[1])
    "load".encode("idna")  # the interpreter's files may be out of reach for that user
    os.setgid(12345)
    os.setuid(12345)
    relays: list[Relay] = []
    deadline = time.monotonic() + 30
    # Those of the rendezvous were made first, at every address.
    while len(listening(victim, SHARED)) < DOORS or len(listening(victim, REAL)) < DOORS:
        if time.monotonic() > deadline:
            raise SystemExit("rank 0 has not opened its doors")
        time.sleep(0.01)
    for door, target in zip(listening(victim, SHARED), listening(victim, REAL), strict=True):
        relays.append(Relay(target, listen=door).__enter__())
    print("ready", flush=True)
    select.select([sys.stdin], [], [], 200)
    connections = sum(relay.connections for relay in relays)
    print(json.dumps({"connections": connections, "passed": max(each.most_passed for each in relays)}))


if __name__ == "__main__":
    main()
