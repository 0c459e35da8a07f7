"""A miniature ImageNet, made once."""

from __future__ import annotations

import sys

import pytest
from imagenet_programs import EXAMPLE, Miniature, run
from util_packages import needs

sys.path.append(str(EXAMPLE))  # for imagenet_training


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Miniature:
    needs("PIL", "google_crc32c")
    scratch = tmp_path_factory.mktemp("imagenet")
    raw = scratch / "raw_data"
    made = run("utils/make_miniature_imagenet.py", raw)
    assert made.returncode == 0 and "10 classes with 40 + 8 images" in made.stdout, made.stderr
    shards = ("--train_shards=8", "--validation_shards=3")
    made = run("utils/preprocess_imagenet.py", f"--local_scratch_dir={scratch}", *shards)
    assert made.returncode == 0, made.stderr
    assert "train: 400 images written" in made.stdout and "2 repaired, 0 unreadable" in made.stdout, (
        made.stdout
    )
    assert "n90000001_0.JPEG: JPEG in CMYK became JPEG in RGB" in made.stderr
    assert "n90000002_0.JPEG: PNG in RGB became JPEG in RGB" in made.stderr
    return Miniature(raw, scratch / "tf_records")
