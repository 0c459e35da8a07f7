"""The elastic examples run as their first lines say, and the demo as `make demo-elastic` does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from examples_util import horovodrun, run
from util_packages import needs
from util_paths import EXAMPLES

ELASTIC = EXAMPLES / "elastic"
PROGRAMS = {
    "pytorch_mnist_elastic.py": "torch",
    "tensorflow2_mnist_elastic.py": "tensorflow",
    "keras_mnist_elastic.py": "tensorflow",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, tmp_path: Path) -> None:
    needs(PROGRAMS[program])
    needs("mlxtend")
    code, output = horovodrun(
        *("-np", "2", "--min-np", "1", "--host-discovery-script", ELASTIC / "discover_hosts.sh"),
        *(sys.executable, ELASTIC / program, "--limit", "1000", "--epochs", "2"),
        cwd=tmp_path,
    )
    assert code == 0, output
    found = [float(each) for each in re.findall(r"accuracy ([\d.]+)% with 2 processes", output)]
    assert found and found[-1] > 50, output
    assert "generation 1: 2 ranks on localhost:2" in output


@pytest.mark.timeout(200)
def test_demo(tmp_path: Path) -> None:
    words = (sys.executable, ELASTIC / "demo.py", "--picture", tmp_path / "demo.svg")
    code, output = run(*words, cwd=tmp_path)
    assert code == 0, output
    assert output.endswith("same weights as the undisturbed run\n")
    assert output.count("=== killing rank") == 2 and "localhost is gone" in output
    assert "<svg" in (tmp_path / "demo.svg").read_text()
