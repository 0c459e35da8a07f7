"""horovod.torch under the real launcher, where a launch of checks would not do."""

import subprocess
import sys
from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs

needs("torch")

HERE = Path(__file__).parent


@pytest.mark.parametrize("option", ["--fp16-allreduce", "--use-adasum"])
def test_classic_script(option: str) -> None:
    outcome = launch(2, HERE / "classic_script.py", option, timeout=120)
    assert outcome.code == 0 and "parameters agree" in outcome.output, outcome.output
    accuracy = float(outcome.output.split("accuracy ")[1].split(",")[0])
    assert accuracy > 0.9, outcome.output


def test_import_does_not_load_the_compiler() -> None:
    code = "import sys, horovod.torch; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
