"""The wheel as a user gets it: one for all Pythons, needs only libc and libstdc++, no compiler.

It is built for this machine, or is the one that HOROVOD_TEST_WHEEL names (make test-wheels).
"""

from __future__ import annotations

import email.message
import email.parser
import os
import platform
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import manylinux
import pytest
from util_packages import needs
from util_paths import ROOT

import horovod

ALLOWED = {
    "libc.so",
    "libm.so",
    "libstdc++.so",
    "libgcc_s.so",
    "libpthread.so",
    "libdl.so",
    "ld-linux-x86-64.so",
    "ld-linux-aarch64.so",
}
GIVEN = os.environ.get("HOROVOD_TEST_WHEEL")
USER = """\
import numpy as np
import numpy.typing as npt
import horovod
import horovod.numpy as hvd


def total(numbers: npt.NDArray[np.float64]) -> float:
    hvd.init()
    print(f"{hvd.rank()} of {hvd.size()}, horovod {horovod.__version__}")
    return float(hvd.allreduce(numbers, op=hvd.Sum, name="numbers").sum())


def shares(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    received, counts = hvd.alltoall(rows, splits=[1, 1])
    print(counts.sum(), hvd.alltoall(rows).shape)
    first, *others = hvd.grouped_allreduce([received, rows], compression=hvd.Compression.fp16)
    return first


def everywhere() -> list[float]:
    results: list[float] = horovod.run(total, (np.ones(3),), num_proc=2)
    return results
"""
MISTAKES = """\
import horovod
import horovod.numpy as hvd

hvd.init()
hvd.alreduce([1.0])
hvd.allreduce([1.0], nam="x")
rank: str = hvd.rank()
horovod.runn(print)
text: str = hvd.allreduce([1.0])
hvd.alltoall([1.0], [1]).sum()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if GIVEN:
        return Path(GIVEN)
    folder = tmp_path_factory.mktemp("wheel")
    start = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
        timeout=600,
    )
    print(f"built in {time.monotonic() - start:.0f} s")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with nothing but the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    subprocess.run([environment / "bin" / "pip", "install", "-q", wheel], check=True, timeout=300)
    return environment


def metadata_of(wheel: Path) -> email.message.Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(archive.read(name).decode())


def test_one_wheel_for_every_python(wheel: Path) -> None:
    system = r"manylinux_\d+_\d+" if GIVEN else "linux"
    assert re.search(rf"-py3-none-{system}_{platform.machine()}\.whl$", wheel.name)


def test_contains_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("libhorovod.so", "libhorovod_tf.so", "py.typed", "runner/launch.py"):
        assert f"horovod/{name}" in names
    assert all(name.startswith("horovod") for name in names)


def test_says_what_it_is(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["Version"] == horovod.__version__
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    assert not [line for line in classifiers if line.startswith("License ::")]  # not beside the expression


def test_libraries_need_nothing_else(wheel: Path, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    libraries = [name for name in archive.namelist() if name.endswith(".so")]
    for name in libraries:
        path = archive.extract(name, tmp_path)
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.+?\.so)", dynamic))
        assert needed <= ALLOWED | {Path(other).name for other in libraries}, name


def test_keeps_the_promise_of_its_name(wheel: Path) -> None:
    """One that this machine's compiler made does not keep that of manylinux, as it needs a libstdc++."""
    problems = manylinux.broken_promises(wheel)
    if GIVEN:
        assert not problems
        return
    assert problems == [f"{wheel.name} has no tag py3-none-manylinux_..."]
    other = wheel.with_name(wheel.name.replace("-linux_", "-manylinux_2_17_"))
    other.hardlink_to(wheel)
    assert f"{other.name}: libhorovod.so needs libstdc++.so" in manylinux.broken_promises(other)
    elsewhere = wheel.with_name("horovod-1-py3-none-manylinux_2_17_aarch64.whl")
    elsewhere.hardlink_to(wheel)
    assert any("libhorovod.so is for " in problem for problem in manylinux.broken_promises(elsewhere))


def test_installed_in_a_fresh_environment_it_runs_two_processes(installed: Path, tmp_path: Path) -> None:
    """The program of the README's sixty seconds, with the result that is there."""
    page = (ROOT / "README.md").read_text()
    (program,) = re.findall(r"^```python\n# train.py\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(program + "\nimport horovod\nprint(horovod.__file__)\n")
    done = subprocess.run(
        [installed / "bin" / "horovodrun", "-np", "2", script],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{installed}/lib/") == 2, done.stdout
    expected, result = (re.findall(r"2 ranks agree on \[(.*)\]", text) for text in (page, done.stdout))
    assert [float(x) for x in result[0].split()] == pytest.approx(
        [float(x) for x in expected[0].split()], abs=1e-6
    )


def mypy(installed: Path, program: Path) -> subprocess.CompletedProcess[str]:
    needs("mypy")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull),
            *("--cache-dir", program.parent / "cache", "--python-executable", installed / "bin" / "python"),
            program,
        ],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_types_are_for_users_too(installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(USER)
    done = mypy(installed, program)
    assert done.returncode == 0, done.stdout + done.stderr
    program.write_text(MISTAKES)
    done = mypy(installed, program)
    wrong = re.findall(r"^user.py:(\d+): error:", done.stdout, re.M)
    assert wrong == ["5", "6", "7", "8", "9", "10"], done.stdout + done.stderr
