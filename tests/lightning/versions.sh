#!/usr/bin/env bash
# Older versions of Lightning: versions.sh PYTHON VERSION..., with all else, torch above all, as PYTHON has it.
# Each is put into a directory under build/ that comes before PYTHON's own packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
shift
for version in "$@"; do
  packages=$PWD/build/lightning-$version
  # Up to 2.2 it needs pkg_resources, which setuptools no longer has.
  [ -d "$packages/lightning" ] || "$python" -m pip install -q --no-deps --target "$packages" \
    "lightning==$version" "pytorch-lightning==$version" "setuptools<80"
  echo "=== Lightning $version"
  PYTHONPATH=$packages "$python" -m pytest -q -p no:cacheprovider tests/lightning/checks_*.py
done
