"""The wheel as a user gets it: one for all Pythons, nothing but libc and libstdc++, works without a compiler."""

import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "libc.so",
    "libm.so",
    "libstdc++.so",
    "libgcc_s.so",
    "libpthread.so",
    "libdl.so",
    "ld-linux-x86-64.so",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_one_wheel_for_every_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_contains_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "horovod/libhorovod.so" in names
    assert "horovod/runner/launch.py" in names
    assert all(name.startswith("horovod") for name in names)


def test_libraries_need_nothing_else(wheel: Path, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    libraries = [name for name in archive.namelist() if name.endswith(".so")]
    for name in libraries:
        path = archive.extract(name, tmp_path)
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.+?\.so)", dynamic))
        assert needed <= ALLOWED | {Path(other).name for other in libraries}, name


def test_installed_in_a_fresh_environment_it_runs_two_processes(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    binaries = environment / "bin"
    subprocess.run([binaries / "pip", "install", "-q", wheel], check=True, timeout=300)
    script = tmp_path / "job.py"
    script.write_text(
        "import horovod, horovod.numpy as hvd\n"
        "hvd.init()\n"
        "print(horovod.__file__, hvd.allreduce([hvd.rank()], op=hvd.Sum))\n"
    )
    done = subprocess.run(
        [binaries / "horovodrun", "-np", "2", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{environment}/lib/") == 2 and done.stdout.count("[1]\n") == 2
