"""Two hosts with addresses of their own: pods of an indexed Job, and mpirun over ssh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from started_by import environment, places, rank, run
from started_mpis import Mpi

EACH_ALONE = ["0/2 0/1 0/2", "1/2 0/1 1/2"]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """As Kubernetes shows a secret: behind links."""
    (tmp_path / "..data").mkdir()
    file = tmp_path / "..data" / "key"
    file.touch(0o400)
    file.write_text("k" * 64)
    (tmp_path / "key").symlink_to("..data/key")
    return tmp_path / "key"


def pods(hosts: Hosts, first: dict[str, str], second: dict[str, str]) -> list[tuple[int, str]]:
    """Runs the two pods, the second one first."""
    late = subprocess.Popen(
        hosts.words(2, *rank("well")),
        env=environment(JOB_COMPLETION_INDEX="1", HOROVOD_SIZE="2", **second),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        early = run(
            hosts.words(1, *rank("well")),
            environment(JOB_COMPLETION_INDEX="0", HOROVOD_SIZE="2", **first),
        )
        output, _ = late.communicate(timeout=60)
    finally:
        late.kill()
        late.wait()
    return [early, (late.returncode, output)]


def test_pods(hosts: Hosts, key: Path) -> None:
    env = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "host1", "HOROVOD_SECRET_KEY_FILE": str(key)}
    outcomes = pods(hosts, env, env)
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    assert places("".join(output for _, output in outcomes)) == EACH_ALONE


def test_pods_with_different_keys(hosts: Hosts, key: Path) -> None:
    env = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "host1", "HOROVOD_START_TIMEOUT": "2"}
    first = {**env, "HOROVOD_SECRET_KEY_FILE": str(key)}
    second = {**env, "_HOROVOD_SECRET_KEY": "f" * 64}
    (code0, output0), (code1, output1) = pods(hosts, first, second)
    assert code0 != 0 and "missing: rank 1" in output0, output0
    assert code1 != 0 and "nobody with the same key answers at host1" in output1, output1
    assert "f" * 64 not in output1


@pytest.mark.parametrize("way", ["mpi4py", "home"])
def test_mpirun(hosts: Hosts, mpirun: str, open_mpi_5: Mpi, way: str, tmp_path: Path) -> None:
    words = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "3", "-H", "host1:2,host2:1"]
    words += ["--mca", "oob_tcp_if_include", "192.0.2.0/24", "--mca", "btl_tcp_if_include", "192.0.2.0/24"]
    words += ["--mca", "plm_rsh_args", "-q -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"]
    words += ["--mca", "orte_keep_fqdn_hostnames", "1", "-x", "PYTHONPATH", "-x", "HOME"]
    (tmp_path / "mpi4py.py").write_text("raise ImportError\n")  # hides one that may be installed
    path = str(open_mpi_5.packages if way == "mpi4py" else tmp_path)
    env = environment(path=path, HOME=str(tmp_path) if way == "home" else "/root")
    code, output = run(hosts.words(1, *words, *rank("well", "pairs")), env)
    assert code == 0 and places(output) == ["0/3 0/2 0/2", "1/3 1/2 0/1", "2/3 0/1 1/2"], output
    assert output.count("with mpi4py") == (3 if way == "mpi4py" else 0)
