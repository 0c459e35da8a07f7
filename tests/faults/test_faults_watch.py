"""Ranks watch each other along a tree: wherever in it one dies or is stopped, all others name it."""

from __future__ import annotations

import re

import pytest
from fault_job import StartJob

# With two below one: rank 0 has 1, 2 and the leaders 4 and 6 below it, 4 also 8 and 10; 12 is below 10, and
# above 13.
GROUPS = {"HOROVOD_TOPOLOGY": "4,2,2,2,4"}
GRACE = {"SIGKILL": 30.0, "SIGSTOP": 6.0}  # seconds to tell it, before the launcher ends who is left
HOW = {"SIGKILL": "was killed by signal 9", "SIGSTOP": r"has been silent for \d\.\d s \(its process is stop"}
QUICK = [("SIGKILL", 0), ("SIGKILL", 4), ("SIGSTOP", 4), ("SIGSTOP", 12)]
REST = [("SIGKILL", 12), ("SIGKILL", 13), ("SIGSTOP", 0), ("SIGSTOP", 13)]
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]


def run(start: StartJob, size: int, fan_out: int, victim: int, how: str, **settings: str) -> str:
    """Returns what was printed, after a look at what the survivors say."""
    job = start(size, "program_watch.py", str(victim), how, str(fan_out), grace=GRACE[how], **settings)
    output = job.finish(100).stdout
    for rank in range(size):
        if rank != victim:
            said = rf"rank {rank} says: rank {victim} \(host [^)]*\) {HOW[how]}"
            assert re.search(said, output), (rank, output)
    return output


@pytest.mark.parametrize(("how", "victim"), CASES)
def test_all_name_the_rank(start: StartJob, how: str, victim: int) -> None:
    output = run(start, 14, 2, victim, how, **GROUPS)
    for rank, count in ((0, 4), (4, 4), (13, 1)):
        assert f"rank {rank} watches {count}\n" in output


def test_of_40_ranks_of_a_host_each_watches_few(start: StartJob) -> None:
    output = run(start, 40, 32, 12, "SIGKILL")
    watched = [int(count) for count in re.findall(r"watches (\d+)\n", output)]
    assert len(watched) == 40 and sum(watched) == 2 * 39 and max(watched) < 10
