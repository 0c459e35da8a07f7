"""Limits of descriptors: raised as far as allowed, and named where they do not do."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

import pytest
from runner_util import Launcher, horovodrun

PYTHON = sys.executable
ALLREDUCE = """
import resource, numpy as np, horovod.numpy as hvd
hvd.init()
assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
print("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0], "of", hvd.size(), flush=True)
"""


def limited(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_soft_limit_is_raised() -> None:
    # Enough for launcher and agent only after it is raised. The ranks inherit that, so one lowers it again.
    lower = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 500))\n"
    launcher = Launcher("-np", "4", PYTHON, "-c", lower + ALLREDUCE, preexec=limited(40, 500))
    result = launcher.finish(60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("limit 500 of 4") == 4


def test_limit_is_named_by_the_launcher() -> None:
    result = Launcher("-np", "40", "true", preexec=limited(60, 60)).finish()
    assert result.returncode == 1
    assert "the ranks need 44 file descriptors" in result.stderr
    assert "may have only 60: raise the hard limit" in result.stderr


def test_limit_is_named_by_the_agent() -> None:
    result = Launcher("-np", "40", "true", preexec=limited(100, 100)).finish()
    assert result.returncode == 126
    assert "the pipes of the ranks need 120 file descriptors" in result.stderr


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_limit_is_named_by_the_rank(transport: str) -> None:
    lower = (
        "import os, resource\n"
        "if os.environ['HOROVOD_RANK'] == '0': resource.setrlimit(resource.RLIMIT_NOFILE, (45, 45))\n"
    )
    env = {"HOROVOD_TRANSPORT": transport}
    result = horovodrun("-np", "5", PYTHON, "-c", lower + ALLREDUCE, env=env, seconds=60)
    assert result.returncode == 1
    assert "the connections of rank 0 to " in result.stderr
    assert "may have only 45: raise the hard limit" in result.stderr


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_many_ranks_with_the_usual_limit() -> None:
    # Half a minute on two cores, but others may need them, too.
    env = {
        "HOROVOD_START_TIMEOUT": "400",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "400",
        "HOROVOD_PEER_TIMEOUT_SECONDS": "60",
        "OMP_NUM_THREADS": "1",
    }
    launcher = Launcher("-np", "256", PYTHON, "-c", ALLREDUCE, env=env, preexec=limited(1024, 1024))
    result = launcher.finish(450)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("limit 1024 of 256") == 256
