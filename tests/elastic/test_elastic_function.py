"""horovod.run with elastic arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import horovod

pytestmark = pytest.mark.timeout(120)
TWO = "localhost:1,127.0.0.1:1"


def test_results_of_the_last_world(tmp_path: Path) -> None:
    """Also of functions that never call init(): rank and size are true at the start."""
    found = horovod.run(
        lambda: (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"], os.environ["HOROVOD_HOSTNAME"]),
        num_proc=2,
        min_num_proc=2,
        hosts=TWO,
    )
    assert found == [("0", "2", "localhost"), ("1", "2", "127.0.0.1")]


def test_a_rank_dies(tmp_path: Path) -> None:
    """The other one goes on, and its result is the only one."""

    def work(flag: str) -> Any:
        import signal

        import numpy

        import horovod.numpy as hvd

        hvd.init()
        state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)

        @hvd.elastic.run
        def train(state: Any) -> Any:
            while state.step < 20:
                if state.step == 5 and hvd.rank() == 0 and not os.path.exists(flag):
                    open(flag, "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
                hvd.allreduce(numpy.ones(2), name="step")
                state.step += 1
                state.commit()
            return hvd.rank(), hvd.size(), state.step

        return train(state)

    found = horovod.run(work, (str(tmp_path / "dead"),), num_proc=2, min_num_proc=1, hosts=TWO)
    assert found == [(0, 1, 20)]


def test_failure() -> None:
    def work() -> None:
        raise KeyError("nobody can do this")

    with pytest.raises(RuntimeError, match=r"(?s)nobody can do this.*Process name: \S+\[0\]\nExit code: 1"):
        horovod.run(work, num_proc=2, min_num_proc=1, hosts=TWO)


def test_too_few_slots(tmp_path: Path) -> None:
    os.environ["HOROVOD_ELASTIC_TIMEOUT"] = "1"
    try:
        with pytest.raises(RuntimeError, match="Timed out waiting for minimum number of slots"):
            horovod.run(os.getcwd, num_proc=2, min_num_proc=2, host_discovery_script="echo localhost")
    finally:
        del os.environ["HOROVOD_ELASTIC_TIMEOUT"]


def test_contradiction() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        horovod.run(os.getcwd, hosts="a", host_discovery_script="b")
