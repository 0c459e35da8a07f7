"""horovod.torch under the real launcher."""

import subprocess
import sys
from pathlib import Path

import pytest
from util_launch import launch, run_checks

pytest.importorskip("torch")

HERE = Path(__file__).parent


@pytest.mark.parametrize("np", [2, 3])
def test_collectives(np: int) -> None:
    run_checks(np, HERE / "checks_all.py", timeout=240, HOROVOD_DYNAMIC_PROCESS_SETS="1")


def test_one_rank() -> None:
    checks = ["check_ops_allreduce", "check_ops_allgather", "check_ops_groups", "check_ops_sparse"]
    run_checks(1, HERE / "checks_all.py", *checks, "check_functions_optimizer_state", timeout=120)


def test_after_a_join() -> None:
    run_checks(2, HERE / "checks_after_join.py", timeout=120)


@pytest.mark.parametrize("option", ["--fp16-allreduce", "--use-adasum"])
def test_classic_script(option: str) -> None:
    outcome = launch(2, HERE / "classic_script.py", option, timeout=120)
    assert outcome.code == 0 and "parameters agree" in outcome.output, outcome.output
    accuracy = float(outcome.output.split("accuracy ")[1].split(",")[0])
    assert accuracy > 0.9, outcome.output


def test_import_does_not_load_the_compiler() -> None:
    code = "import sys, horovod.torch; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
