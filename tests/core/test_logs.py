"""HOROVOD_LOG_LEVEL: what is told at each level, by the engine and by Python's logger."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from runner_util import horovodrun

PROGRAM = """
import logging, os
import numpy as np
import horovod.numpy as hvd

hvd.init(process_sets="dynamic")
os.write(1, f"logger {logging.getLogger('horovod').level}\\n".encode())  # at once: the engine writes, too
some = hvd.add_process_set([0, 1])
if some.included():
    hvd.allreduce(np.ones(10), name="x", process_set=some)
hvd.remove_process_set(some)
for name in ("a", "b", "c"):  # more than the cache holds
    hvd.allreduce(np.ones(10), name=name)
"""
INFO = [
    "[0] INFO: 3 ranks on localhost, transport shm; HOROVOD_CACHE_CAPACITY=2, ",
    "[0] INFO: Added process set 1: ranks 0, 1.",
    "[0] INFO: Removed process set 1.",
]
DEBUG = [
    "[0] DEBUG: Released allreduce 'allreduce.x' to ranks 0, 1.",
    "[0] DEBUG: Released allreduce 'allreduce.c' to ranks 0-2.",
    "[0] DEBUG: Evicted number ",
]
TRACE = [
    "[0] TRACE: Submitted allreduce 'allreduce.x'.",
    "[1] TRACE: Submitted allreduce 'allreduce.x'.",
    "[0] TRACE: Rank 1 has allreduce 'allreduce.x' ready.",
]


@pytest.mark.parametrize(
    ("level", "told", "untold"),
    [
        ("warning", [], [*INFO, *DEBUG, *TRACE]),
        ("info", INFO, [*DEBUG, *TRACE]),
        ("debug", [*INFO, *DEBUG], TRACE),
        ("trace", [*INFO, *DEBUG, *TRACE], []),
    ],
)
def test_each_level(tmp_path: Path, level: str, told: list[str], untold: list[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"HOROVOD_LOG_HIDE_TIME": "1", "HOROVOD_CACHE_CAPACITY": "2", "HOROVOD_LOG_LEVEL": level}
    result = horovodrun("-np", "3", sys.executable, "program.py", cwd=tmp_path, env=env)
    assert result.returncode == 0, result.stderr
    for line in told:
        assert line in result.stdout, line
    for line in untold:
        assert line not in result.stdout, line
    number = {"trace": 5}.get(level, logging.getLevelName(level.upper()))
    assert result.stdout.count(f"logger {number}") == 3
    assert "SECRET" not in result.stdout
