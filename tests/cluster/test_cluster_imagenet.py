"""examples/imagenet on several hosts: its helpers for clusters, and training with a hosts file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import util_packages
from cluster_hosts import Hosts
from util_packages import needs
from util_paths import ROOT

EXAMPLE = ROOT / "examples" / "imagenet"


def bash(
    hosts: Hosts, script: str, *words: str | Path, seconds: float = 120, **environment: str
) -> tuple[int, str]:
    """Runs a script on host1 with the helpers loaded; its exit code and everything that it printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        hosts.words(1, "bash", "-c", f'source "$0"; {script}', EXAMPLE / "utils" / "cluster.sh", *words),
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )
    print(done.stdout)
    return done.returncode, done.stdout


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    file = tmp_path / "hosts"
    file.write_text("192.0.2.2 slots=1\n   host3:1  # a comment\n\n   localhost slots=1")
    return file


def test_runclust(hosts: Hosts, hosts_file: Path) -> None:
    line = """echo "$(hostname) has 'one  two'" $((1 + 1)); cat"""  # cat would eat the list of hosts
    code, output = bash(hosts, 'runclust "$1" "$2"', hosts_file, line)
    assert code == 0
    for host, name in ((1, "localhost"), (2, "192.0.2.2"), (3, "host3")):
        assert f"== {name}\n" in output and f"host{host} has 'one  two' 2\n" in output
    code, output = bash(hosts, 'runclust "$1" "$2"', hosts_file, 'test "$(hostname)" != host2')
    assert code == 1 and "failed on: 192.0.2.2\n" in output and "== localhost" in output


def test_wrong_hosts_files(hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    code, output = bash(hosts, 'runclust "$1" true', file)
    assert code == 2 and "can't be read" in output
    file.write_text("-oProxyCommand=touch${IFS}x slots=1\n")
    code, output = bash(hosts, 'runclust "$1" true', file)
    assert code == 2 and "is not the name of a host" in output
    assert bash(hosts, "runclust hosts")[0] == 2 and bash(hosts, "copyclust hosts a")[0] == 2


def test_copyclust(hosts: Hosts, hosts_file: Path, tmp_path: Path) -> None:
    reason = util_packages.why_not({"rsync": "rsync"})
    if reason is not None:
        pytest.skip(reason)
    data = tmp_path / "data $(touch x)"
    data.mkdir()
    (data / "it's a file").write_text("content")
    # The hosts share the file system: what is copied to both is the same copy.
    target = tmp_path / "to here"
    code, output = bash(hosts, 'copyclust "$1" "$2/" "$3/deep/"', hosts_file, data, target)
    assert code == 0 and output == "== 192.0.2.2\n== host3\n"
    assert (target / "deep" / "it's a file").read_text() == "content"
    code, output = bash(hosts, 'copyclust "$1" "$2" "$3"', hosts_file, tmp_path / "missing", target)
    assert code == 1 and "failed on: 192.0.2.2 host3" in output


@pytest.mark.timeout(320)
def test_synthetic_training_over_hosts(hosts: Hosts, hosts_file: Path) -> None:
    needs("tensorflow")
    flags = "--model=resnet8 --image_size=32 --num_classes=10 --batch_size=4 --num_batches=3"
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_NUM_INTRAOP_THREADS": "1"}
    code, output = bash(
        hosts, f'"$1" 2 {flags}', EXAMPLE / "train_synthetic.sh", seconds=300, HOSTS=str(hosts_file), **quiet
    )
    assert code == 0 and "Horovod size: 2\n" in output
    assert re.search(r"(?m)^\[0\]<stdout>: +1 +0\.0 +\S+ +\S+ +\S+ \d\.\d{5}$", output)
