"""Elastic trainings whose hosts come and go in order."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from elastic_job import A, B, Training
from util_lag import Lag

Start = Callable[..., Training]

every_framework = pytest.mark.parametrize(
    "framework",
    [
        "torch",
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("keras", marks=pytest.mark.slow),
        pytest.param("jax", marks=pytest.mark.slow),
    ],
)
pytestmark = pytest.mark.timeout(300)


def up_and_down(slots: int) -> dict[str, str]:
    """What a discovery script says after the first epochs: A and B, then B."""
    return {"1": f"{A}:{slots}\n{B}:{slots}\n", "2": f"{B}:{slots}\n"}


def grown_and_shrunk(start: Start, framework: str, slots: int) -> Training:
    """A training that ran on A, on both hosts, and at last on B."""
    flags = ("-np", str(slots), "--min-np", str(slots), "--max-np", str(2 * slots))
    job = start(framework, *flags, hosts=f"{A}:{slots}\n", changes=up_and_down(slots))
    job.succeed()
    assert job.epochs("start_rank", "size", "hostname") == [
        (0, slots, A),
        (0, 2 * slots, A),
        (slots, slots, B),
    ]
    job.check_nothing_was_repeated()
    return job


@pytest.mark.parametrize("framework", ["torch", "keras", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_grows_and_loses_its_first_host(start: Start, framework: str) -> None:
    """Row 1."""
    job = grown_and_shrunk(start, framework, 2)
    assert job.notes("epoch")[-1]["rendezvous"] == 3
    assert [job.ended(f"{A}[{slot}]") for slot in (0, 1)] == ["exited with code 0"] * 2


@every_framework
@pytest.mark.slow
def test_grows_and_loses_its_first_host_one_slot_each(start: Start, framework: str) -> None:
    """Row 1 with one slot: a world of one grows."""
    grown_and_shrunk(start, framework, 1)


@every_framework
def test_a_host_leaves(start: Start, framework: str) -> None:
    """Row 2: nothing is lost, nothing sent, and its workers end by themselves."""
    job = start(framework, "-np", "4", "--min-np", "2", hosts=f"{A}:2\n{B}:2\n", changes={"1": f"{A}:2\n"})
    job.succeed()
    assert job.sizes() == [4, 2, 2]
    assert job.notes("epoch")[-1]["rendezvous"] == 2
    job.check_nothing_was_repeated()
    assert {note["sync"] for note in job.notes("begin", generation=2)} == {False}
    assert [job.ended(f"{B}[{slot}]") for slot in (0, 1)] == ["exited with code 0"] * 2


@every_framework
@pytest.mark.slow
def test_the_reset_limit(start: Start, framework: str) -> None:
    """Row 10."""
    flags = ("-np", "2", "--min-np", "2", "--max-np", "4")
    job = start(framework, *flags, "--reset-limit", "1", hosts=f"{A}:2\n", changes=up_and_down(2))
    assert job.finish() == 1
    assert "exceeded limit: 1" in job.output
    assert job.sizes()[:2] == [2, 4]
    job = start(framework, *flags, "--reset-limit", "2", hosts=f"{A}:2\n", changes=up_and_down(2))
    job.succeed()
    assert job.sizes() == [2, 4, 2]


DISCOVERY = """#!/bin/sh
n=$(($(cat {0}/calls 2>/dev/null || echo 0) + 1))
echo $n > {0}/calls
case $n in
{1}
esac
cat {0}/hosts
"""


@every_framework
def test_a_discovery_script_that_fails_for_a_while(start: Start, framework: str) -> None:
    """Row 13: nothing changes, and it is said once."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        script = DISCOVERY.format(
            directory, "2|3|4|5) exit 1;;\n6) echo 'what : is this :'; exit 0;;\n7) sleep 1000;;"
        ).replace(f"cat {directory}/hosts", f"printf '{A}:1\\n{B}:1\\n'")
        job = start(
            framework,
            "-np",
            "2",
            "--min-np",
            "2",
            hosts="",
            script=script,
            environment={"HOROVOD_ELASTIC_DISCOVERY_SECONDS": "0.2"},
            epoch_seconds=1.0,
        )
        job.succeed()
        assert job.sizes() == [2, 2, 2]
        assert len(job.events("generation")) == 1
        assert job.output.count("the last answer counts") == 1


def test_a_discovery_script_that_fails_at_once(start: Start, lag: Lag) -> None:
    """Row 13, second part: nothing is started."""
    began = time.monotonic()
    job = start("torch", "-np", "2", "--min-np", "2", hosts="", script="#!/bin/sh\necho sorry >&2\nexit 3\n")
    assert job.finish(20) == 1
    assert time.monotonic() - began <= 2 + lag.allowance_since(began)
    assert "Failed to execute discovery script" in job.output and "sorry" in job.output
    assert not job.notes()


@every_framework
@pytest.mark.slow
def test_slots_of_one_host_come_and_go(start: Start, framework: str) -> None:
    """Row 19: the highest slots leave, the others keep their local rank."""
    changes = {"1": f"{A}:4\n", "2": f"{A}:1\n"}
    job = start(framework, "-np", "2", "--min-np", "1", "--max-np", "4", hosts=f"{A}:2\n", changes=changes)
    job.succeed()
    assert job.sizes() == [2, 4, 1]
    places: dict[int, set[int]] = {}
    for note in job.notes("begin"):
        places.setdefault(note["pid"], set()).add(note["local_rank"])
    assert all(len(each) == 1 for each in places.values())
    assert [note["local_rank"] for note in job.notes("begin", generation=3)] == [0]
    assert [job.ended(f"{A}[{slot}]") for slot in (1, 2, 3)] == ["exited with code 0"] * 3
