"""Jobs of LSF: their hosts, and the command lines of jsrun."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from runner_util import horovodrun
from util_packages import needs

from horovod.runner import jsrun, lsf
from horovod.runner.mpirun import MpirunJob
from horovod.runner.plan.hosts import HostInfo, assign_ranks

JOB = {"LSB_JOBID": "77"}


@pytest.fixture
def host_file(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("node1\nnode1\nnode2\nnode2\nnode2\n")
    return path


def test_hosts(host_file: Path) -> None:
    by_file = lsf.hosts({**JOB, "LSB_DJOB_HOSTFILE": str(host_file)})
    assert by_file == [HostInfo("node1", 2), HostInfo("node2", 3)]
    assert lsf.hosts({**JOB, "LSB_MCPU_HOSTS": "node1 2 node2 3"}) == by_file
    csm = {**JOB, "CSM_ALLOCATION_ID": "5", "LSB_MCPU_HOSTS": "batch1 1 node1 42"}
    assert lsf.hosts(csm) == [HostInfo("node1", 42)]
    for environ, text in (
        (JOB, "job 77 of LSF names no hosts"),
        ({**JOB, "LSB_MCPU_HOSTS": "node1"}, "'host slots host slots'"),
        ({**JOB, "LSB_MCPU_HOSTS": "node1 x"}, "LSB_MCPU_HOSTS='node1 x'"),
    ):
        with pytest.raises(ValueError, match=text):
            lsf.hosts(environ)


def test_number_of_processes(host_file: Path) -> None:
    assert lsf.size({**JOB, "LSB_DJOB_HOSTFILE": str(host_file)}) == 5
    assert lsf.size({}) is None
    assert lsf.size({**JOB, "CSM_ALLOCATION_ID": "5", "LSB_MCPU_HOSTS": "batch1 1 node1 42"}) is None


def test_processes_are_spread() -> None:
    nodes = [HostInfo("a", 42), HostInfo("b", 42)]
    assert lsf.spread(nodes, 12) == [HostInfo("a", 6), HostInfo("b", 6)]
    assert lsf.spread([HostInfo("a", 1), HostInfo("b", 4)], 4) == [HostInfo("a", 1), HostInfo("b", 4)]


def jsrun_job(**rest: object) -> jsrun.JsrunJob:
    hosts = [HostInfo("a", 2), HostInfo("b", 1)]
    job = MpirunJob(3, hosts, ["python", "train.py", "a b"], {}, **rest)  # type: ignore[arg-type]
    return jsrun.JsrunJob(job, assign_ranks(hosts, 3), [HostInfo("a", 4), HostInfo("b", 4)])


def test_jsrun_command() -> None:
    plain = jsrun.command_line(jsrun_job().job, "/tmp/ranks")
    assert shlex.join(plain) == "jsrun --erf_input /tmp/ranks python train.py 'a b'"
    full = jsrun_job(output="out", tcp=True, mpi_args="-x y", binding_args="--nrs 3 --tasks_per_rs 1").job
    assert shlex.join(jsrun.command_line(full, "")) == (
        "jsrun --nrs 3 --tasks_per_rs 1 --stdio_stderr out --stdio_stdout out --smpiargs '-tcp -x y' "
        "python train.py 'a b'"
    )


def test_rank_file() -> None:
    assert jsrun.rank_file(jsrun_job(), 4) == (
        "overlapping_rs: allow\n"
        "cpu_index_using: logical\n"
        "\n"
        "rank: 0: { hostname: a; cpu: {0-7} ; gpu: * ; mem: * }\n"
        "rank: 1: { hostname: a; cpu: {8-15} ; gpu: * ; mem: * }\n"
        "rank: 2: { hostname: b; cpu: {0-15} ; gpu: * ; mem: * }\n"
    )


def test_too_few_processors() -> None:
    job = jsrun_job()
    with pytest.raises(ValueError, match="a has fewer processors than the 2 processes"):
        jsrun.rank_file(jsrun.JsrunJob(job.job, job.slots, [HostInfo("a", 1)]), 1)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A job of two slots on this machine, and a jsrun that shows what it is told."""
    (tmp_path / "hosts").write_text("localhost\nlocalhost\n")
    script = tmp_path / "bin" / "jsrun"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho "jsrun: $@"; [ "$1" = --erf_input ] && cat "$2" && rm "$2"\nexit 7\n')
    script.chmod(0o755)
    path = f"{script.parent}:/usr/bin:/bin"
    return {**JOB, "LSB_DJOB_HOSTFILE": str(tmp_path / "hosts"), "PATH": path, "TMPDIR": str(tmp_path)}


def test_without_jsrun_the_slots_are_used(environ: dict[str, str]) -> None:
    done = horovodrun("sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE", env={**environ, "PATH": "/bin"})
    assert done.returncode == 0, done.stderr
    assert "[0]<stdout>:rank 0 of 2" in done.stdout and "[1]<stdout>:rank 1 of 2" in done.stdout
    done = horovodrun("-np", "3", "true", env={**environ, "PATH": "/bin"})
    assert done.returncode == 2 and "the hosts have 2 slots" in done.stderr


@pytest.mark.parametrize("flags", [["--jsrun"], []])
def test_jsrun_is_called(environ: dict[str, str], flags: list[str]) -> None:
    needs("mpi4py")
    done = horovodrun(*flags, "sh", "train.sh", env=environ, cwd=Path(environ["TMPDIR"]))
    assert done.returncode == 7, done.stderr
    assert "jsrun: --erf_input" in done.stdout and done.stdout.count("hostname: localhost;") == 2
    assert " sh train.sh\n" in done.stdout or "/sh train.sh\n" in done.stdout
    done = horovodrun(*flags, "--report", "r.html", "--timeline", "t", "--dry-run", "true", env=environ)
    assert "note: --report has no effect with jsrun\n" in done.stderr
    assert "note: jsrun leaves the ranks' parts of the timeline" in done.stderr
    done = horovodrun("--gloo", "true", env=environ)
    assert done.returncode == 0, done.stderr


def test_jsrun_outside_of_lsf() -> None:
    done = horovodrun("--jsrun", "-np", "1", "true")
    assert done.returncode == 2 and "LSB_JOBID is not set" in done.stderr
