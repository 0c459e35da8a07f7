#!/usr/bin/env bash
# The one wheel with other versions of TensorFlow: versions.sh WHEEL VERSION..., each in a venv under build/.
# Runs a short form of the TensorFlow and Keras tests. All versions must exist for $PYTHON (3.11 has them all).
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=$PWD/tests
wheel=$(realpath "$1")
shift
for version in "$@"; do
  venv=build/tf-$version
  frameworks=("tensorflow-cpu==$version.*")
  # Up to 2.15 tf.keras is the older Keras; since 2.16 that is a package of its own.
  case $version in 2.13 | 2.14 | 2.15) ;; *) frameworks+=("tf_keras==$version.*") ;; esac
  [ -x "$venv/bin/pip" ] || "${PYTHON:-python3}" -m venv "$venv"
  # One call, so that pip finds versions of everything, numpy above all, that go with this TensorFlow.
  "$venv/bin/pip" install -q "${frameworks[@]}" "pytest>=8" "pytest-timeout>=2.3" "$wheel"
  "$venv/bin/pip" install -q --no-deps --force-reinstall "$wheel"
  echo "=== $("$venv/bin/pip" list --format=freeze | grep -E '^(tensorflow-cpu|keras|tf_keras|numpy)=' | xargs)"
  # Not from the top of the tree, whose package would be found in place of the wheel's.
  (cd "$venv" && bin/pytest -q -p no:cacheprovider "$tests/tensorflow" "$tests/keras" \
    -k "not torch")
done
