"""horovod.tensorflow under the real launcher."""

import importlib.util
import os
from pathlib import Path

import pytest
from util_launch import launch, run_checks

pytest.importorskip("tensorflow")

HERE = Path(__file__).parent
ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    # Ranks that wait for each other end the launch long before its time is up.
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "30",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120",
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("np", "transport"), [(2, "shm"), pytest.param(3, "tcp", marks=pytest.mark.slow)])
def test_everything(np: int, transport: str) -> None:
    run_checks(np, HERE / "checks.py", timeout=380, HOROVOD_TRANSPORT=transport, **ENVIRONMENT)


@pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed")
def test_one_thread_and_older_keras() -> None:
    run_checks(2, HERE / "checks_one_thread.py", timeout=280, TF_USE_LEGACY_KERAS="1", **ENVIRONMENT)


@pytest.mark.slow  # test_everything has them on two
def test_200_gradients_on_four_ranks() -> None:
    """CHECK_STEPS=1000 for the long form."""
    steps = os.environ.get("CHECK_STEPS", "100")
    run_checks(4, HERE / "checks.py", "check_many_in_flight", timeout=280, CHECK_STEPS=steps, **ENVIRONMENT)


def test_after_a_join() -> None:
    run_checks(2, HERE / "checks_after_join.py", timeout=180, **ENVIRONMENT)


def test_a_peer_dies() -> None:
    outcome = launch(2, HERE / "program_peer_dies.py", **ENVIRONMENT)
    assert outcome.code != 0 and "lost the peer as expected" in outcome.output, outcome.output
    assert "rank 1 on localhost failed first" in outcome.output, outcome.output
