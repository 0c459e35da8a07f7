"""What the engine costs: nothing while idle, and a bounded amount of memory however large the tensors."""

from __future__ import annotations

import pytest
from fault_job import StartJob

IDLE_SHARE = 0.005  # of a processor
MEMORY_MIB = 64 + 8  # the staging buffers, and the interpreter's own ups and downs


def test_idle_engine_uses_no_processor(start: StartJob) -> None:
    job = start(4, "program_idle.py")
    assert job.finish(120).returncode == 0
    shares = [job.notes.wait(f"idle-{rank}", 0)["share"] for rank in range(4)]
    print("share of a processor:", *(f"{share:.3%}" for share in shares))
    assert max(shares) < IDLE_SHARE


@pytest.mark.parametrize(("transport", "np"), [("shm", 2), ("shm", 4), ("tcp", 2)])
def test_large_tensor_in_place_needs_little_memory(start: StartJob, transport: str, np: int) -> None:
    job = start(np, "program_memory.py", HOROVOD_TRANSPORT=transport)
    assert job.finish(120).returncode == 0
    growth = [job.notes.wait(f"memory-{rank}", 0)["mib"] for rank in range(np)]
    print("growth in MiB:", *(f"{each:.0f}" for each in growth))
    assert max(growth) <= MEMORY_MIB
