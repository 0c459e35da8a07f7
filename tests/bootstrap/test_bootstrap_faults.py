"""Whatever happens to one rank while the ranks connect, the others raise in time and name it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from typing import Any

import pytest
from bootstrap_ranks import KEY, Ranks, last_report, ranks
from util_lag import Lag

from horovod._bootstrap.rendezvous.server import RendezvousServer

PEER_TIMEOUT = 1.5
SLACK = 1.5


def first_line(process: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(process.stdout.readline())
    return report


def start_joined_rank(running: Ranks) -> tuple[subprocess.Popen[str], int, float]:
    """A rendezvous server, its port, and when rank 0 of 2, which goes on, had joined there."""
    server, port = running.start_server()
    running.start(
        rank=0,
        size=2,
        port=port,
        transport="auto",
        peer_timeout=PEER_TIMEOUT,
        phase="after join",
        signal="SIGCONT",
    )
    return server, port, first_line(running.processes[0])["time"]


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize(
    ("transport", "phase"),
    [
        ("shm", "after join"),
        ("shm", "building"),
        ("shm", "host"),
        ("shm", "spreading"),
        ("shm", "ready"),
        ("tcp", "after join"),
        ("tcp", "building"),
        ("tcp", "spreading"),
        ("tcp", "ready"),
    ],
)
def test_a_rank_dies_or_freezes(lag: Lag, transport: str, phase: str, name: str, culprit: int) -> None:
    begin = time.monotonic()
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in range(3):
            fault = {"phase": phase, "signal": name} if rank == culprit else {}
            running.start(
                rank=rank, size=3, port=server.port, transport=transport, peer_timeout=PEER_TIMEOUT, **fault
            )
        bad = running.processes[culprit]
        struck = first_line(bad)["time"]
        for rank, process in enumerate(running.processes):
            if rank == culprit:
                continue
            result = last_report(process)
            assert f"rank {culprit} (host testhost, pid {bad.pid})" in result["error"], result
            assert result["kind"] == "HorovodInternalError"
            assert result["leaked"] == 0
            # A rank that came after the failure was told at once; one that waited, within the time limit.
            allowed = SLACK + (PEER_TIMEOUT if name == "SIGSTOP" else 0) + lag.allowance_since(begin)
            assert result["time"] - max(struck, result["began"]) < allowed
        assert not server._membership._scopes


def start_waiting_rank(running: Ranks, server: RendezvousServer, **plan: Any) -> None:
    """Starts rank 0 of 2 and returns when the server has it."""
    running.start(rank=0, size=2, port=server.port, transport="auto", **plan)
    wait_for_members(server, 1)


def wait_for_members(server: RendezvousServer, count: int) -> None:
    end = time.monotonic() + 60
    while len(server._membership._clients) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_missing_ranks_are_named_at_the_deadline() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in (0, 2):
            running.start(rank=rank, size=4, port=server.port, transport="auto", timeout=1.5)
        for result in running.results():
            assert "only 2 of 4 ranks came within 1.5 s" in result["error"]
            assert "rank 1, rank 3" in result["error"]
            assert result["leaked"] == 0


def test_the_launcher_reports_a_rank_that_never_came() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        start_waiting_rank(running, server)
        server.rank_failed(1, "exited with code 3 on host b, pid 77")
        (result,) = running.results()
        assert result["error"] == "rank 1 failed: exited with code 3 on host b, pid 77"


def test_a_rank_reported_before_anyone_joined() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        server.rank_failed(1, "exited with code 3")
        running.start(rank=0, size=2, port=server.port, transport="auto")
        (result,) = running.results()
        assert result["error"] == "rank 1 failed: exited with code 3"
        server.clear_failures()
        with ranks() as second:
            second.start_all(2, port=server.port, transport="auto", scope="again")
            assert all("error" not in result for result in second.results())


def test_the_launcher_ends() -> None:
    server = RendezvousServer(KEY).start()
    with ranks() as running:
        start_waiting_rank(running, server)
        server.stop()
        (result,) = running.results()
        assert "the launcher ended" in result["error"]


def test_the_launcher_freezes(lag: Lag) -> None:
    begin = time.monotonic()
    with ranks() as running:
        server, _, struck = start_joined_rank(running)
        server.send_signal(signal.SIGSTOP)
        (result,) = running.results()
        assert "the launcher is stopped" in result["error"]
        assert result["time"] - struck < PEER_TIMEOUT + SLACK + lag.allowance_since(begin)


def test_stopping_and_continuing_the_whole_job_harms_nothing() -> None:
    with ranks() as running:
        server, port, _ = start_joined_rank(running)
        for process in (running.processes[0], server):
            process.send_signal(signal.SIGSTOP)
        time.sleep(PEER_TIMEOUT + 1)  # the silence is what is tested
        for process in (running.processes[0], server):
            process.send_signal(signal.SIGCONT)
        running.start(rank=1, size=2, port=port, transport="auto", peer_timeout=PEER_TIMEOUT)
        assert [result.get("error") for result in running.results()] == [None, None]


def test_the_launcher_never_answers() -> None:
    # Only the kernel answers here: connections are accepted, then nothing happens.
    with socket.socket() as mute, ranks() as running:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        running.start(rank=0, size=2, port=mute.getsockname()[1], transport="auto", timeout=1)
        (result,) = running.results()
        assert "does not answer" in result["error"]


def test_an_interrupted_rank_says_so_and_leaks_nothing() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in (0, 1):
            running.start(rank=rank, size=3, port=server.port, transport="auto")
        wait_for_members(server, 2)
        running.processes[1].send_signal(signal.SIGINT)
        results = running.results()
        pid = running.processes[1].pid
        assert f"rank 1 (host testhost, pid {pid}) gave up: KeyboardInterrupt" in results[0]["error"]
        assert [result["leaked"] for result in results] == [0, 0]


def test_a_late_rank_hears_of_the_failure_at_once() -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        start_waiting_rank(running, server)
        running.processes[0].kill()
        while server._membership._scopes:
            time.sleep(0.01)
        running.start(rank=1, size=2, port=server.port, transport="auto")
        result = last_report(running.processes[1])
        assert f"rank 0 (host testhost, pid {running.processes[0].pid})" in result["error"]


@pytest.mark.parametrize(
    ("plans", "text"),
    [
        ([{"rank": 0}, {"rank": 0}], "two processes joined as rank 0"),
        ([{"rank": 0}, {"rank": 1, "size": 3}], "expects 3"),
        ([{"rank": 0}, {"rank": 1, "process_sets": [[0, 1]]}], "the list of process sets must be the same"),
        ([{"rank": 0}, {"rank": 1, "transport": "tcp"}], "the transport must be the same"),
    ],
)
def test_ranks_that_disagree(plans: list[dict[str, Any]], text: str) -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for plan in plans:
            running.start(**{"size": 2, "port": server.port, "transport": "auto", **plan})
        for result in running.results():
            assert text in result["error"], result
            for process in running.processes:
                assert f"pid {process.pid}" in result["error"]


@pytest.mark.parametrize("asked", ["auto", "shm"])
def test_a_rank_on_another_host(asked: str) -> None:
    with RendezvousServer(KEY) as server, ranks() as running:
        for rank in range(3):
            running.start(rank=rank, size=3, port=server.port, transport=asked, elsewhere=rank == 2)
        results = running.results()
        if asked == "shm":
            for result in results:
                assert result["kind"] == "ValueError"
                assert "rank 2 (host testhost" in result["error"]
                assert result["leaked"] == 0
        else:
            assert [result.get("transport") for result in results] == ["tcp"] * 3
            # It only seems to be elsewhere: its process can be watched from here.
            assert all(same for result in results for _, _, same in result["peers"])
