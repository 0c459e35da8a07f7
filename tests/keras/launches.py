"""horovod.keras and horovod.tensorflow.keras: Keras 3 on TensorFlow, torch and JAX, and legacy Keras."""

from importlib import metadata

from check_launch import Launch

EVERYTHING = [
    f"checks_{subject}.py" for subject in ("values", "optimizer", "training", "callbacks", "elastic", "steps")
]
ON_TENSORFLOW = [*EVERYTHING, "checks_tensorflow.py"]
# tf.keras is legacy Keras by itself up to TensorFlow 2.15, and Keras of that time knows only TensorFlow.
try:
    KERAS_3 = not metadata.version("keras").startswith("2.")
except metadata.PackageNotFoundError:
    KERAS_3 = False


def keras(
    checks: list[str], slow: bool, name: str, *needs: str, skip: str = "", **environment: str
) -> Launch:
    variables = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", **environment}
    return Launch(
        f"{name}-all" if slow else name,
        2,
        checks,
        variables,
        timeout=480,
        needs=["keras", *needs],
        skip=skip,
        slow=slow,
    )


def on_tensorflow(checks: list[str]) -> Launch:
    return keras(checks, False, "keras", "tensorflow", KERAS_MODULE="keras", KERAS_BACKEND="tensorflow")


def legacy(checks: list[str], slow: bool = False) -> Launch:
    needs = ["tensorflow", "tf_keras"] if KERAS_3 else ["tensorflow"]
    return keras(checks, slow, "legacy-keras", *needs, KERAS_MODULE="tf.keras", TF_USE_LEGACY_KERAS="1")


def on_torch(checks: list[str], slow: bool = False) -> Launch:
    skip = "" if KERAS_3 else "this Keras knows only TensorFlow"
    return keras(
        checks, slow, "keras-on-torch", "torch", skip=skip, KERAS_MODULE="keras", KERAS_BACKEND="torch"
    )


def on_jax(checks: list[str], slow: bool = False) -> Launch:
    skip = "" if KERAS_3 else "this Keras knows only TensorFlow"
    return keras(checks, slow, "keras-on-jax", "jax", skip=skip, KERAS_MODULE="keras", KERAS_BACKEND="jax")


LAUNCHES = [
    on_tensorflow(ON_TENSORFLOW),
    legacy(
        [
            "checks_values.py",
            "checks_optimizer.py",
            "checks_elastic.py",
            "checks_steps.py",
            "checks_tensorflow.py::check_clipping_of_computed_gradients",
            "../docs/checks_older_forms.py",
        ]
    ),
    legacy(ON_TENSORFLOW, slow=True),
    on_torch(["checks_torch.py", "checks_elastic.py", "checks_steps.py"]),
    on_torch(EVERYTHING, slow=True),
    on_jax(["checks_jax.py", "checks_elastic.py", "checks_steps.py"]),
    on_jax(EVERYTHING, slow=True),
]
