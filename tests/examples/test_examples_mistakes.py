"""--help, and mistakes: each gets a message that names the flag and what is wrong, and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples_util import MULTINODE, run
from util_packages import needs
from util_paths import EXAMPLES

needs("tensorflow")
MISTAKES = Path(__file__).with_name("program_mistakes.py")
TF2 = EXAMPLES / "tensorflow2" / "tf2_hvd_mnist.py"
ADAGRAD = EXAMPLES / "tensorflow" / "tensorflow_mnist.py"
SIMPLE, ADVANCED, PRACTICE = (
    EXAMPLES / "keras" / f"{name}.py" for name in ("keras_mnist", "keras_mnist_advanced", "practice")
)
SCALING = EXAMPLES / "scaling_plot.py"
PROGRAMS = (TF2, MULTINODE, ADAGRAD, SIMPLE, ADVANCED, PRACTICE, SCALING)


def test_help_and_mistakes(tmp_path: Path) -> None:
    needs("mlxtend")
    file = tmp_path / "file"
    file.write_text("")
    wrong = [
        ([TF2, "--batch_size=0"], 2, ["--batch_size", "above 0"]),
        ([TF2, "--data-dir=nowhere"], 1, ["--data-dir nowhere", "no such directory"]),
        ([TF2, f"--data-dir={tmp_path}"], 1, ["mnist.npz", "train-images-idx3-ubyte"]),
        ([TF2, f"--summary-dir={file}/x"], 1, ["--summary-dir", "Not a directory"]),
        ([TF2, f"--checkpoint-dir={file}"], 1, ["--checkpoint-dir", "File exists"]),
        ([MULTINODE, "--steps=none"], 2, ["--steps", "'none'"]),
        ([MULTINODE, f"--checkpoint-dir={file}/x"], 1, ["--checkpoint-dir", "Not a directory"]),
        ([ADAGRAD, "--lr=-1"], 2, ["--lr", "'-1'"]),
        ([SIMPLE, "--nonsense"], 2, ["--nonsense"]),
        ([SIMPLE, "--save=model"], 2, ["--save", "'model'", ".keras"]),
        ([ADVANCED, "--limit=x"], 2, ["--limit", "'x'"]),
        ([PRACTICE, "--checkpoint=best"], 2, ["--checkpoint", "'best'", ".h5"]),
        ([SCALING, "--processes=1,x"], 2, ["--processes", "1,2,4"]),
        ([SCALING, f"--output={file}"], 1, ["--output", "File exists"]),
    ]
    commands = [[str(word) for word in words] for words, _, _ in wrong]
    commands += [[str(program), "--help"] for program in PROGRAMS]
    code, output = run(sys.executable, MISTAKES, json.dumps(commands), cwd=tmp_path)
    assert code == 0, output
    results = json.loads(output.partition("RESULTS ")[2])
    assert len(results) == len(commands)
    for (words, expected, texts), (code, said) in zip(wrong, results, strict=False):
        assert code == expected and all(text in said for text in texts), (words, code, said)
        assert "Traceback" not in said
    for program, (code, said) in zip(PROGRAMS, results[len(wrong) :], strict=True):
        assert code == 0 and "usage:" in said, said
        if program not in (SCALING, MULTINODE, ADAGRAD):
            assert "--summary-dir" in said and "--data-dir" in said


@pytest.mark.parametrize("program", [MULTINODE, PRACTICE], ids=["session", "keras"])
def test_no_space_left(tmp_path: Path, program: Path) -> None:
    needs("mlxtend")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a small file system needs root and unshare")
    full = tmp_path / "full"
    full.mkdir()
    inside = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", inside, "sh", full, sys.executable, program, "--limit=64"]
    words += ["--batch-size=32", *_target(program, full)]
    trial = subprocess.run([*map(str, words[:7]), "true"], capture_output=True, text=True, timeout=30)
    if trial.returncode != 0:
        pytest.skip(f"no mounts here: {trial.stderr.strip()}")
    code, output = run(*words, cwd=tmp_path)
    assert code == 1 and "No space left on device" in output, output
    assert str(full) in output and "Traceback" not in output, output


def _target(program: Path, full: Path) -> list[str]:
    if program is MULTINODE:
        return ["--steps=4", f"--checkpoint-dir={full}"]
    return ["--epochs=1", f"--checkpoint={full}/checkpoint.h5"]
