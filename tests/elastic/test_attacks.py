"""Known attacks on the launchers of elastic jobs, again and again while the job changes.

CVE-2024-10190: a PUT to the launcher's rendezvous, whose body is unpickled there. CVE-2026-31234: a
PUT of a value that workers then read and unpickle. And one who was a member, and still has the key.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest
from director import Director, directed

from horovod._bootstrap.elastic_worker import ElasticWorker
from horovod._bootstrap.enlist import Application, LauncherGone, Removed, enlist
from horovod._bootstrap.rendezvous.client import RendezvousClient
from horovod._bootstrap.rendezvous.enlistment import Enlisted, WorldFailed
from horovod._net.connector import connect
from horovod._net.handshake import AuthenticationError
from horovod.runner.elastic.notices import notices_purpose

PROGRAM = Path(__file__).with_name("program_resets.py")
RESETS = 200


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def requests(marker: Path) -> list[bytes]:
    body = pickle.dumps(Payload(marker))
    paths = ("/worker_addresses/localhost%5B0%5D", "/rank_and_size/localhost:0", "/global/0", "/rendezvous/1")
    puts = [
        f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        for path in paths
    ]
    return [*puts, b"GET /rank_and_size/localhost:0 HTTP/1.1\r\nHost: x\r\n\r\n", body]


class Attacker(threading.Thread):
    """Sends all of them to the launcher and to whatever the workers listen on, without end."""

    def __init__(self, director: Director, marker: Path) -> None:
        super().__init__(daemon=True)
        self._director = director
        self._requests = requests(marker)
        self.attempts = 0
        self.at_workers = 0
        self.answers: set[bytes] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            ports = [self._director.server.port]
            for process in list(self._director.workers.values()):
                with contextlib.suppress(psutil.Error):
                    found = psutil.Process(process.pid).net_connections("tcp")
                    listening = [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]
                    self.at_workers += len(listening)
                    ports += listening
            for port in ports:
                for request in self._requests:
                    self._send(port, request)

    def _send(self, port: int, request: bytes) -> None:
        self.attempts += 1
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(request)
            sock.settimeout(0.01)
            self.answers.add(sock.recv(8))


def member(director: Director, number: int) -> ElasticWorker:
    """One who knows the key."""
    return ElasticWorker(number, "localhost", 0, ("127.0.0.1", director.server.port), director.key)


def test_attacks_during_resets(tmp_path: Path) -> None:
    marker = tmp_path / "owned"
    # TCP, so that workers listen on ports, too
    with directed(tmp_path, PROGRAM, HOROVOD_TRANSPORT="tcp") as director:
        workers = [director.start(rank, 2) for rank in range(2)]
        attacker = Attacker(director, marker)
        attacker.start()
        director.enlisted(workers, 0)
        for reset in range(RESETS):
            director.events = [each for each in director.events if not isinstance(each, Enlisted)]
            generation = director.assign(workers)
            if reset == RESETS - 1:
                director.stop.touch()
            else:
                director.enlisted(workers, generation)
        for worker in workers:
            assert director.workers[worker].wait(60) == 0
        attacker.over.set()
        attacker.join(60)
        assert not any(isinstance(each, WorldFailed) for each in director.events)
        assert attacker.attempts > RESETS and attacker.at_workers > 0
        assert attacker.answers <= {b"HVDAUTH2", b""}
        assert not marker.exists()


def test_a_removed_member_that_has_the_key_gets_nothing(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        workers = [director.start(rank, 2) for rank in range(2)]
        director.enlisted(workers, 0)
        director.server.expect(1000)
        director.server.worker_ended(1000, "was removed")
        with pytest.raises(Removed, match="was removed"):
            enlist(member(director, 1000), Application(), 3.0, 60.0)
        with pytest.raises(LauncherGone, match="no worker 1001"):  # one that never was
            enlist(member(director, 1001), Application(), 3.0, 60.0)
        with pytest.raises(AuthenticationError):
            connect(("127.0.0.1", director.server.port), director.key, notices_purpose(1000), 10.0)
        # Nor can it join without having been assigned.
        client = RendezvousClient(("127.0.0.1", director.server.port), director.key, time.monotonic() + 60)
        with contextlib.closing(client):
            client.send(
                {"type": "join", "scope": f"generation.{director.generation + 1}", "rank": 0, "size": 2}
            )
            deadline = time.monotonic() + 60
            while client.failure is None:
                assert time.monotonic() < deadline
                client.on_readable()
                time.sleep(0.01)
        assert "only workers that have been assigned" in client.failure
        director.enlisted(workers, 0)
        director.stop.touch()
        director.assign(workers)
        for worker in workers:
            assert director.workers[worker].wait(60) == 0
