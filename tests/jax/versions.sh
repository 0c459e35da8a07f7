#!/usr/bin/env bash
# The one wheel with other versions of JAX: versions.sh WHEEL VERSION..., each in a venv under build/.
# All versions must exist for $PYTHON (3.11 has them all).
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
wheel=$(realpath "$1")
shift
for version in "$@"; do
  venv=build/jax-$version
  [ -x "$venv/bin/pip" ] || "${PYTHON:-python3}" -m venv "$venv"
  # One call, so that pip finds versions of everything that go with this JAX.
  "$venv/bin/pip" install -q "jax==$version" "jaxlib==$version" optax ml_dtypes "pytest>=8" "pytest-timeout>=2.3" "$wheel"
  "$venv/bin/pip" install -q --no-deps --force-reinstall "$wheel"
  echo "=== $("$venv/bin/pip" list --format=freeze | grep -E '^(jax|jaxlib|optax|numpy)=' | xargs)"
  # Not from the top of the tree, whose package would be found in place of the wheel's.
  (cd "$venv" && bin/pytest -q -p no:cacheprovider -c "$root/pyproject.toml" --rootdir "$root" "$root/tests/jax" \
    -k "not conformance and not jax-3 and not mnist")
done
