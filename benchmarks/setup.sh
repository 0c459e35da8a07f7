#!/bin/sh
# Prepares .venv-bench, where torch and mpi4py live for the comparison, and Open MPI if the system has none.
# Safe to repeat. The package itself comes from this tree: build it first (pip install -e .).
set -eu
cd "$(dirname "$0")/.."
venv=.venv-bench

if ! command -v mpirun >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openmpi-bin libopenmpi-dev
    else
        echo "setup.sh: no mpirun here; the comparison will leave Open MPI out (Debian: openmpi-bin, libopenmpi-dev)" >&2
    fi
fi

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 mpi4py "numpy>=1.23" "PyYAML>=6" \
    "cloudpickle>=2" "psutil>=5.9" "rich>=13"
# Not an installation: that would compile the core a second time.
"$venv/bin/python" -c 'import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "horovod_tree.pth").write_text(f"{pathlib.Path.cwd()}\n")'
"$venv/bin/python" -c 'import horovod.numpy, torch' || {
    echo "setup.sh: the package does not import; build it first: pip install -e ." >&2
    exit 1
}
