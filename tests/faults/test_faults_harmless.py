"""What looks like a fault to a careless engine: forks, and a rank that has finished before the others."""

from __future__ import annotations

import pytest
from fault_job import StartJob


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_forks_do_not_disturb(start: StartJob, transport: str) -> None:
    job = start(2, "program_fork.py", HOROVOD_TRANSPORT=transport)
    assert job.finish(120).returncode == 0
    for rank in range(2):
        job.notes.wait(f"done-{rank}", 0)


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_rank_that_ends_without_shutdown(start: StartJob, leaver: int) -> None:
    job = start(3, "program_leaves.py", str(leaver), HOROVOD_TRANSPORT=("shm", "tcp")[leaver % 2])
    assert job.finish(120).returncode == 0
    for rank in {0, 1, 2} - {leaver}:
        texts = job.notes.wait(f"saw-{rank}", 0)["texts"]
        assert texts[0] == texts[1]
        assert f"shut down: rank {leaver} " in texts[0]
