"""An example by its document's command line for two machines, and the end of the tutorial."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import horovodrun
from util_packages import needs
from util_paths import ROOT

MULTINODE = ROOT / "examples" / "tensorflow" / "TensorFlow_Multinode_Training_with_Horovod.py"


def test_multinode_training(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tensorflow", "mlxtend")
    monkeypatch.chdir(tmp_path)
    result = horovodrun(hosts, "-n", "2", "-H", "host1,host2", MULTINODE, "--steps", "10", seconds=100)
    assert result.returncode == 0, result.stderr
    assert re.search(r"=+\n.*Number of tasks:  2\n.*Total time is: [\d.]+\n", result.stdout)
    assert (tmp_path / "checkpoints" / "model.ckpt-5.index").exists()


@pytest.mark.slow
def test_tutorial(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tensorflow", "sklearn")
    monkeypatch.chdir(tmp_path)
    program = ROOT / "examples" / "tutorial" / "step5_warmup.py"
    words = ["-np", "2", "-H", "host1,host2", sys.executable, program]
    result = horovodrun(hosts, *words, seconds=100)
    assert result.returncode == 0, result.stderr
    (found,) = re.findall(r"^\[0\]<stdout>:Test accuracy ([\d.]+)%$", result.stdout, flags=re.MULTILINE)
    assert float(found) > 85
