"""horovod.keras and horovod.tensorflow.keras under the real launcher."""

from pathlib import Path

import pytest
from util_launch import run_checks

keras = pytest.importorskip("keras")

CHECKS = Path(__file__).with_name("checks_all.py")
EVERYTHING = "values,optimizer,training,callbacks"


def test_keras_on_tensorflow() -> None:
    """Keras 3; up to TensorFlow 2.15, the Keras of that time."""
    pytest.importorskip("tensorflow")
    run(KERAS_MODULE="keras", KERAS_BACKEND="tensorflow", KERAS_CHECKS=f"{EVERYTHING},tensorflow")


@pytest.mark.parametrize(
    "checks", ["values,optimizer", pytest.param(f"{EVERYTHING},tensorflow", marks=pytest.mark.slow)]
)
def test_legacy_keras(checks: str) -> None:
    if hasattr(keras, "ops"):  # tf.keras is legacy Keras by itself up to TensorFlow 2.15
        pytest.importorskip("tf_keras")
    run(KERAS_MODULE="tf.keras", TF_USE_LEGACY_KERAS="1", KERAS_CHECKS=checks)


@pytest.mark.parametrize("checks", ["torch", pytest.param(EVERYTHING, marks=pytest.mark.slow)])
def test_keras3_on_torch(checks: str) -> None:
    pytest.importorskip("torch")
    if not hasattr(keras, "ops"):
        pytest.skip("this Keras knows only TensorFlow")
    run(KERAS_MODULE="keras", KERAS_BACKEND="torch", KERAS_CHECKS=checks)


def run(**environment: str) -> None:
    run_checks(2, CHECKS, timeout=240, HOROVOD_DYNAMIC_PROCESS_SETS="1", **environment)
