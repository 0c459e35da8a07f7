"""The miniature data set is learned on two processes, also in two goes, and the evaluation is exact."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pytest
from imagenet_programs import Miniature, run
from imagenet_training.schedule import Schedule
from util_packages import needs

needs("tensorflow")
TRAIN = "train_imagenet_resnet_hvd.py"
SMALL = ("--model=resnet8", "--image_size=32", "--num_classes=10")
ROW = r"(?m)^\[0\]<stdout>: *(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) ([\d.]+)$"
HEAD = "[0]<stdout>:  Step Epoch  Speed  Loss   FinLoss LR\n"
RESULT_HEAD = "  step  epoch  top1    top5     loss   checkpoint_time(UTC)\n"
RESULT = (
    r"(?m)^(?:\[0\]<stdout>:)? {2,}(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)"
    r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"
)


@pytest.mark.timeout(700)
def test_learns_resumes_and_evaluates_exactly(miniature: Miniature, tmp_path: Path) -> None:
    # Without flags the data and the checkpoints are in the home directory.
    home, log = str(tmp_path), tmp_path / "imagenet_resnet"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tf-imagenet").symlink_to(miniature.records)
    common = (*SMALL, "--lr=0.5", "--num_threads=2")
    both = ("2", *common, "--batch_size=20", "--warmup_epochs=1", "--display_every=10", "--save_interval=30")

    # The first go ends early: with its own number of steps, and a checkpoint.
    first = run("train.sh", *both, "--num_batches=30", "--no_eval", HOME=home)
    assert first.returncode == 0, first.stdout + first.stderr
    assert re.search(r"(?m)^\[0\]<stdout>:PY3\S.* TF2\S+ Horovod size: 2$", first.stdout), first.stdout
    assert first.stdout.count(HEAD) == 1 and "Evaluating" not in first.stdout
    assert [row[0] for row in re.findall(ROW, first.stdout)] == ["0", "1", "10", "20"]
    assert re.search(r"(?m)^\[0\]<stdout>:Finished in [\d.]+$", first.stdout)

    # The second one goes on, with the learning rate of its place.
    second = run("train.sh", *both, "--num_epochs=9", HOME=home)
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"Going on from the checkpoint of step 30 in {log}" in second.stdout
    rows = re.findall(ROW, second.stdout)
    assert [row[0] for row in rows] == ["30", "31", "40", "50", "60", "70", "80"], second.stdout
    schedule = Schedule(0.5, 90, 10)
    for step, epoch, _, loss, whole, rate in rows:
        assert rate == f"{schedule.rate(int(step)):.5f}" and epoch == f"{int(step) * 40 / 400:.1f}"
        assert float(whole) > float(loss)
    assert float(rows[-1][3]) < float(rows[0][3]), second.stdout
    for line in ("Horovod size: 2", "Evaluating", "Validation dataset size: 80", "Finished evaluation"):
        assert second.stdout.count(f"[0]<stdout>:{line}\n") == 1, second.stdout
    assert second.stdout.count(f"[0]<stdout>:{RESULT_HEAD}") == 1
    assert "[1]<stdout>" not in first.stdout + second.stdout
    [result] = re.findall(RESULT, second.stdout)
    step, epoch, top1, top5 = result[:4]
    assert (step, epoch) == ("90", "9.0") and float(top1) > 45 and float(top5) > 80, second.stdout

    # One process that sees all images, in other batches, comes to the same percentages.
    alone = run(TRAIN, *common, "--eval", "--batch_size=7", HOME=home)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert re.findall(RESULT, alone.stdout) == [result], alone.stdout


def test_shares_of_the_validation_images(miniature: Miniature) -> None:
    """Every image is in exactly one share, whether there are more files or more processes."""
    from imagenet_training import images, record_files

    options = argparse.Namespace(num_classes=10, image_size=16, batch_size=9, num_threads=2)
    files = record_files.find(miniature.records, "validation")
    assert [record_files.records(path) for path in files] == [26, 27, 27]

    def seen(size: int) -> list[tuple[int, float]]:
        shares = [images.checked(images.evaluation(files, options, rank, size)) for rank in range(size)]
        pairs = [(batch, labels) for share in shares for batch, labels in share]
        return sorted(
            (int(label), float(np.sum(image)))
            for batch, labels in pairs
            for image, label in zip(batch.numpy(), labels.numpy(), strict=True)
        )

    alone = seen(1)
    assert len(alone) == 80 and {label for label, _ in alone} == set(range(10))
    assert seen(2) == alone and seen(4) == alone


def test_shares_of_the_training_images(miniature: Miniature) -> None:
    """In one epoch two processes see each image once; the next epoch is shared out differently."""
    import tensorflow as tf
    from imagenet_training import images, record_files

    options = argparse.Namespace(num_classes=10, image_size=8, batch_size=50, num_threads=2)
    files = record_files.find(miniature.records, "train")
    assert len(files) == 8
    sequences = [images.file_sequence(files, rank, 2, 5) for rank in (0, 1)]
    first, second = ([name.numpy().decode() for name in sequence.take(8)] for sequence in sequences)
    for epoch in (slice(0, 4), slice(4, 8)):
        assert sorted(first[epoch] + second[epoch]) == list(map(str, files))
    assert set(first[:4]) != set(first[4:])
    batch, labels = next(images.checked(images.training(files, options, 400, 0, 2, 5)))
    assert batch.shape == (50, 8, 8, 3) and labels.dtype == tf.int32
    assert abs(float(tf.reduce_mean(batch))) < 3


def test_bad_records(miniature: Miniature, tmp_path: Path) -> None:
    from imagenet_training import images, record_files

    options = argparse.Namespace(num_classes=5, image_size=16, batch_size=9, num_threads=2)
    files = record_files.find(miniature.records, "validation")
    with pytest.raises(SystemExit, match=r"has label\] \[\d+\].*--num_classes 5"):
        list(images.checked(images.evaluation(files, options, 0, 1)))
    for path in files:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / files[1].name).open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(SystemExit, match="validation-00001-of-00003 ends in the middle of a record"):
        record_files.records(tmp_path / files[1].name)
    (tmp_path / files[1].name).unlink()
    with pytest.raises(SystemExit, match="has 2 files of 'validation', but their names speak of 3"):
        record_files.find(tmp_path, "validation")


def test_synthetic() -> None:
    small = (*SMALL, "--batch_size=4", "--num_batches=11", "--display_every=5")
    variant = ("--lars", "--precision=bf16", "--fp16_allreduce", "--label_smoothing=0")
    done = run("train_synthetic.sh", "2", *small, *variant)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Horovod size: 2\n" in done.stdout and done.stdout.count(HEAD) == 1
    rows = re.findall(ROW, done.stdout)
    assert [row[0] for row in rows] == ["0", "1", "5", "10"], done.stdout
    assert [row[5] for row in rows] == [f"{Schedule(6.4, 11, 0).rate(step):.5f}" for step in (0, 1, 5, 10)]
    assert all(float(row[2]) > 0 for row in rows)
    assert "Finished in " in done.stdout and "Evaluating" not in done.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("train.sh", "2", "--data_dir=/nowhere"), "--data_dir /nowhere does not exist"),
        (("train.sh", "2", "--data_dir=/"), "has no files train-00000-of-"),
        (("train.sh", "99"), "99 processes were requested but the hosts have 8 slots"),
        ((TRAIN, "--lr=-1"), "--lr -1.0: it must be above 0"),
        ((TRAIN, "--lr=nan"), "--lr nan"),
        ((TRAIN, "--modle=resnet8"), "unrecognized arguments: --modle=resnet8"),
        ((TRAIN, "--eval", "--synthetic"), "--eval goes with neither"),
    ],
)
def test_mistakes(words: tuple[str, ...], answer: str) -> None:
    done = run(*words)
    assert done.returncode != 0 and answer in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "program",
    [
        TRAIN,
        "utils/preprocess_imagenet.py",
        "utils/tensorflow_image_resizer.py",
        "utils/make_miniature_imagenet.py",
    ],
)
def test_every_flag_has_help(program: str) -> None:
    done = run(program, "--help")
    assert done.returncode == 0
    flags = re.findall(r"(?m)^  (-\S.*)$", done.stdout)
    assert len(flags) > 3
    for flag in done.stdout.split("\n  -")[1:]:
        assert re.search(r"\S {2,}\S|\n {8,}\S", flag), flag
