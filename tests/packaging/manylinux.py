"""Whether wheels keep what the manylinux tags in their names promise: `python manylinux.py WHEEL...`.

A wheel for manylinux_2_17_aarch64 runs on that processor with glibc 2.17 or newer and needs nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_OF_GLIBC = {
    "libc.so",
    "libm.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "ld-linux-x86-64.so",
    "ld-linux-aarch64.so",
}
_MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
_OURS = ("hvd_", "horovod_tf_")


def broken_promises(wheel: Path) -> list[str]:
    """What is wrong with a wheel, one line each."""
    tag = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl$", wheel.name)
    if tag is None:
        return [f"{wheel.name} has no tag py3-none-manylinux_..."]
    glibc, architecture = (int(tag[1]), int(tag[2])), tag[3]
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        libraries = sorted(Path(folder).rglob("*.so"))
        found = [] if libraries else ["there are no libraries in it"]
        for library in libraries:
            allowed = _OF_GLIBC | {other.name for other in libraries}
            found += [f"{library.name} {what}" for what in _of_library(library, glibc, architecture, allowed)]
    return [f"{wheel.name}: {what}" for what in found]


def _of_library(library: Path, glibc: tuple[int, int], architecture: str, allowed: set[str]) -> list[str]:
    found = []
    if _MACHINES[architecture] not in (header := _readelf("-h", library)):
        machine = re.search(r"Machine:\s*(.*)", header)
        found.append(f"is for {machine[1] if machine else 'an unknown machine'}")
    for needed in re.findall(r"NEEDED.*\[(.+?\.so)", _readelf("-d", library)):
        if needed not in allowed:
            found.append(f"needs {needed}")
    # What it asks of other libraries has versions; the rest is what others can ask of it.
    versions = re.findall(r"Name: ([A-Z]+)_([\d.]+)", _readelf("-V", library))
    for name, version in versions:
        if name != "GLIBC" or tuple(map(int, version.split("."))) > (*glibc, 99):
            found.append(f"needs {name}_{version}")
    for symbol in re.findall(r"(?:GLOBAL|WEAK)\s+DEFAULT\s+\d+ (\S+)", _readelf("--dyn-syms", library)):
        if not symbol.startswith(_OURS):
            found.append(f"shows others its {symbol}")
    return found


def _readelf(what: str, library: Path) -> str:
    command = ["readelf", "-W", what, library]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def main(wheels: list[str]) -> int:
    """Says for each wheel what is wrong with it, or that it is as it should be. 1 if one is not."""
    problems = []
    for wheel in map(Path, wheels):
        problems += (found := broken_promises(wheel))
        print(*(found or [f"{wheel.name}: as promised"]), sep="\n")
    return 1 if problems or not wheels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
