"""Kubeflow's MPI operator: pods are reached through its script."""

from __future__ import annotations

from pathlib import Path

from runner_util import horovodrun

from horovod.runner import kubexec, ssh


def test_only_that_script_counts() -> None:
    name = "OMPI_MCA_plm_rsh_agent"
    assert kubexec.script({name: "/etc/mpi/kubexec.sh"}) == kubexec.SCRIPT
    for agent in ("ssh", "/usr/bin/rsh", "kubexec.sh", ""):
        assert kubexec.script({name: agent}) is None
    assert kubexec.script({}) is None


def test_command() -> None:
    words = ssh.command("worker-0", ssh.SshOptions(script=kubexec.SCRIPT), 5, "/usr/bin/python3")
    assert words[:2] == [kubexec.SCRIPT, "worker-0"] and len(words) == 3
    assert words[2].startswith("cd / && exec /usr/bin/python3 -c ")


def test_a_job_through_the_script(tmp_path: Path) -> None:
    """As the operator's script does it: a pod, and the rest is for a shell there."""
    script = tmp_path / "kubexec.sh"
    script.write_text('#!/bin/sh\npod=$1\nshift\necho "$pod" >> "${0%/*}/pods"\nexec /bin/sh -c "$*"\n')
    script.chmod(0o755)
    program = tmp_path / "train.py"
    program.write_text(
        "import numpy as np, horovod.numpy as hvd\n"
        "hvd.init()\n"
        "print('sum', int(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]), 'of', hvd.rank())\n"
    )
    words = ["-np", "2", "-H", "pod-a.invalid,pod-b.invalid", "--network-interfaces", "lo", str(program)]
    done = horovodrun(*words, env={"OMPI_MCA_plm_rsh_agent": str(script)}, seconds=120)
    assert done.returncode == 0, done.stderr
    assert "[0]<stdout>:sum 2 of 0" in done.stdout and "[1]<stdout>:sum 2 of 1" in done.stdout
    assert sorted((tmp_path / "pods").read_text().split()) == ["pod-a.invalid", "pod-b.invalid"]
