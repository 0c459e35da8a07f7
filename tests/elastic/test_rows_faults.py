"""Elastic trainings in which processes fail."""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections.abc import Callable

import psutil
import pytest
from elastic_job import A, B, Training
from test_rows_hosts import every_framework
from util_lag import Lag

Start = Callable[..., Training]
pytestmark = pytest.mark.timeout(300)
FOUR = ("-np", "4", "--min-np", "2")
BOTH = f"{A}:2\n{B}:2\n"
C = "127.0.1.1"  # another name of this machine
SURVIVED = [(0, 4, 1), (2, 2, 2), (2, 2, 2)]  # start rank, size and rendezvous of each epoch


def fault(*start_ranks: int, **how: object) -> dict[str, object]:
    return {"start_ranks": start_ranks, "how": "kill", "epoch": 1, "batch": 0, **how}


def check_survivors(job: Training) -> None:
    """Epoch 0 with four, the others with the two of B, in the same processes."""
    assert job.epochs("start_rank", "size", "rendezvous") == SURVIVED
    pids = {note["start_rank"]: note["pid"] for note in job.notes("begin", generation=1)}
    assert {note["pid"] for note in job.notes("end")} == {pids[2], pids[3]}
    assert f"blacklist failing host: {A}" in job.output
    # By the launcher; it may hear that it is removed before the signal comes.
    assert re.match(r"was ended by signal 15|exited with code (143|0)$", job.ended(f"{A}[1]"))
    job.check_nothing_was_repeated()


@every_framework
@pytest.mark.parametrize("fixed", [False, True], ids=["discovered", "fixed"])
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_rank_0_fails(start: Start, framework: str, how: str, fixed: bool, lag: Lag) -> None:
    """Rows 3, 4 and 5."""
    began = time.monotonic()
    if fixed:
        job = start(framework, *FOUR, "-H", f"{A}:2,{B}:2", faults=[fault(0, how=how)])
    else:
        job = start(framework, *FOUR, hosts=BOTH, faults=[fault(0, how=how)])
    job.succeed()
    check_survivors(job)
    failed = job.notes("fault")[0]["time"]
    recovered = max(note["time"] for note in job.notes("begin", generation=2))
    if how == "kill":
        assert recovered - failed <= 1.0 + lag.allowance_since(began), recovered - failed
    else:
        assert job.output.count("RuntimeError: a planned failure") == 1


@every_framework
@pytest.mark.slow
def test_all_fail(start: Start, framework: str, lag: Lag) -> None:
    """Row 6."""
    began = time.monotonic()
    job = start(framework, *FOUR, hosts=BOTH, faults=[fault(0, 1, 2, 3, how="raise")])
    assert job.finish() != 0
    assert "Horovod detected that one or more processes exited with non-zero status" in job.output
    assert "Process name: " in job.output and "Exit code: 1" in job.output
    failed = min(note["time"] for note in job.notes("fault"))
    assert job.over - failed <= 10 + lag.allowance_since(began)


@every_framework
@pytest.mark.slow
def test_one_of_each_host_fails(start: Start, framework: str) -> None:
    """Row 7: no host is left although two processes lived."""
    job = start(framework, *FOUR, hosts=BOTH, faults=[fault(0, 2, how="raise")])
    assert job.finish() != 0
    assert "Horovod detected that one or more processes exited with non-zero status" in job.output


@every_framework
@pytest.mark.slow
def test_too_few_are_left(start: Start, framework: str, lag: Lag) -> None:
    """Row 8: the survivors wait for as long as they were told to."""
    began = time.monotonic()
    flags = ("-np", "4", "--min-np", "4", "--elastic-timeout", "2")
    job = start(framework, *flags, hosts=BOTH, faults=[fault(0)])
    assert job.finish() != 0
    failed = job.notes("fault")[0]["time"]
    assert 2.0 <= job.over - failed <= 8.0 + lag.allowance_since(began)
    for name in (f"{B}[0]", f"{B}[1]"):  # by the launcher, at the end
        assert "signal 15" in job.ended(name) or job.ended(name) == "exited with code 143"
    assert job.output.index("Timed out waiting") > job.output.index("was ended by signal 9")
    assert "Timed out waiting for minimum number of slots to become available" in job.output
    assert job.output.rindex("Horovod detected") > job.output.index("Timed out waiting")


@every_framework
@pytest.mark.slow
def test_another_host_takes_its_place(start: Start, framework: str) -> None:
    """Row 9: newcomers start with the survivors' state."""
    flags = ("-np", "4", "--min-np", "4", "--elastic-timeout", "150")
    job = start(framework, *flags, hosts=BOTH, faults=[fault(0)])
    job.wait_for("fault")
    time.sleep(1)
    job.set_hosts(f"{A}:2\n{B}:2\n{C}:2\n")
    job.succeed()
    assert job.sizes() == [4, 4, 4]
    begun = job.notes("begin", generation=job.notes("end")[0]["generation"])
    assert {(note["epoch"], note["batch"], note["commits"]) for note in begun} == {(1, 0, 11)}
    job.check_nothing_was_repeated()


@every_framework
@pytest.mark.slow
@pytest.mark.parametrize("host", [B, A])
def test_a_host_comes_back_after_its_cooldown(start: Start, framework: str, host: str, lag: Lag) -> None:
    """Row 11."""
    began = time.monotonic()
    flags = ("-np", "4", "--min-np", "2", "--blacklist-cooldown-range", "1", "2")
    faults = [fault(0 if host == A else 3)]
    job = start(framework, *flags, hosts=BOTH, epochs=60, epoch_seconds=1.0, until_size=4, faults=faults)
    job.succeed()
    job.check_nothing_was_repeated()
    sizes = job.sizes()
    assert sizes[0] == 4 and 2 in sizes and sizes[-1] == 4, sizes
    failed = job.notes("fault")[0]["time"]
    again = [note["at"] - failed for note in job.notes("started", host=host) if note["at"] > failed]
    # The first delay is 2 to 3 times the least, and at most the largest.
    assert len(again) == 2 and 1.95 <= min(again) <= 3.5 + lag.allowance_since(began), again
    # It is the youngest host now, wherever it was: rank 0 stays where it is.
    assert {note["hostname"] for note in job.notes("epoch")[1:]} == {B if host == A else A}


@pytest.mark.parametrize("given", [("0", "5"), ("1", "4000"), ("3", "2")])
def test_cooldowns_that_make_no_sense(start: Start, given: tuple[str, str]) -> None:
    """Row 11, second part."""
    job = start("torch", *FOUR, "--blacklist-cooldown-range", *given, hosts=BOTH)
    assert job.finish(20) == 2
    assert "--blacklist-cooldown-range" in job.output


@every_framework
@pytest.mark.slow
@pytest.mark.parametrize("stopped", [3, 0])
def test_a_rank_is_stopped(start: Start, framework: str, stopped: int, lag: Lag) -> None:
    """Row 14."""
    began = time.monotonic()
    job = start(
        framework,
        *FOUR,
        hosts=BOTH,
        faults=[fault(stopped, how="stop", batch=3)],
        # The latter, as the names of the hosts differ.
        environment={"HOROVOD_PEER_TIMEOUT_SECONDS": "3", "HOROVOD_HOST_TIMEOUT_SECONDS": "3"},
    )
    job.succeed()
    assert job.sizes() == [4, 2, 2]
    failed = job.notes("fault")[0]["time"]
    recovered = max(note["time"] for note in job.notes("begin", generation=2))
    assert recovered - failed <= 3.0 + 1.0 + 3 * lag.allowance_since(began)
    host = A if stopped == 0 else B
    assert re.search(rf"{re.escape(host)} is not used any more: .*has been silent for", job.output)
    job.check_nothing_was_repeated()


@every_framework
@pytest.mark.slow
def test_one_finishes_before_the_others(start: Start, framework: str) -> None:
    """Row 17."""
    job = start(framework, *FOUR, hosts=BOTH, faults=[fault(1, how="return", epoch=1)])
    assert job.finish() != 0
    assert len(job.events("generation")) == 1
    assert "rank 1 finished while rank" in job.output


@every_framework
@pytest.mark.slow
def test_a_host_is_preempted(start: Start, framework: str) -> None:
    """Row 18: SIGTERM to the agent is a notice, and the host leaves in order."""
    job = start(framework, *FOUR, hosts=BOTH, epoch_seconds=1.0, epochs=4)
    job.wait_for("epoch")
    workers = {note["pid"] for note in job.notes("begin") if note["start_rank"] == 2}
    agent = psutil.Process(workers.pop()).parent()
    assert agent is not None
    agent.send_signal(signal.SIGTERM)
    job.succeed()
    assert job.sizes()[0] == 4 and job.sizes()[-1] == 2
    assert f"blacklist failing host: {B}" not in job.output
    assert [job.ended(f"{B}[{slot}]") for slot in (0, 1)] == ["exited with code 0"] * 2
    assert {note["sync"] for note in job.notes("begin", generation=2)} == {False}
    job.check_nothing_was_repeated()


@every_framework
@pytest.mark.slow
def test_failures_during_recovery(start: Start, framework: str, lag: Lag) -> None:
    """Row 20: one dies, another inside sync(), a third while the next world is built."""
    began = time.monotonic()
    job = start(
        framework,
        "-np",
        "5",
        "--min-np",
        "2",
        hosts=f"{A}:1\n{B}:1\n127.0.0.2:1\n127.0.0.3:1\n127.0.0.4:1\n",
        faults=[fault(0), fault(1, where="sync", generation=2), fault(2, where="init", generation=3)],
    )
    job.succeed()
    assert job.sizes() == [5, 2, 2]
    faults = sorted(job.notes("fault"), key=lambda note: float(note["time"]))
    assert [note["start_rank"] for note in faults] == [0, 1, 2]
    recovered = max(note["time"] for note in job.notes("begin") if note["size"] == 2)
    moments = [*(note["time"] for note in faults), recovered]
    longest = max(later - earlier for earlier, later in itertools.pairwise(moments))
    assert longest <= 3.0 + 1.0 + lag.allowance_since(began), moments
    job.check_nothing_was_repeated()
