"""Raw images to TFRecords: what they contain, interruption, and everything that can be wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from imagenet_programs import ENVIRONMENT, Miniature, command, run
from util_packages import Lazy, needs

needs("tensorflow")
tf = Lazy("tensorflow")
PREPROCESS = "utils/preprocess_imagenet.py"
RESIZER = "utils/tensorflow_image_resizer.py"


def examples(directory: Path, subset: str) -> list[Any]:
    files = sorted(map(str, directory.glob(f"{subset}-*-of-*")))
    return [tf.train.Example.FromString(data.numpy()) for data in tf.data.TFRecordDataset(files)]


def value(example: Any, key: str) -> Any:
    feature = example.features.feature[key]
    values = getattr(feature, feature.WhichOneof("kind")).value
    return values[0] if len(values) == 1 else list(values)


def name(example: Any) -> str:
    return value(example, "image/filename").decode()


def test_records_have_the_customary_keys(miniature: Miniature) -> None:
    found = examples(miniature.records, "train")
    assert sorted(map(name, found)) == sorted(path.name for path in miniature.raw.glob("train/*/*.JPEG"))
    for example in found:
        data = tf.io.decode_jpeg(value(example, "image/encoded"))
        assert data.shape == (value(example, "image/height"), value(example, "image/width"), 3)
        synset = value(example, "image/class/synset").decode()
        assert name(example).startswith(synset)
        assert value(example, "image/class/label") == int(synset[-2:])  # 1 ... 10 by construction
        assert value(example, "image/colorspace") == b"RGB" and value(example, "image/format") == b"JPEG"
        assert value(example, "image/channels") == 3
    example = next(one for one in found if name(one) == "n90000003_2.JPEG")
    assert value(example, "image/class/text") == b"triangle"
    box = [value(example, f"image/object/bbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
    assert 0 < box[0] < box[2] < 1 and 0 < box[1] < box[3] < 1
    # What is in the box is brighter than the noise around it.
    image = tf.io.decode_jpeg(value(example, "image/encoded")).numpy()
    height, width = image.shape[:2]
    inside = image[int(box[1] * height) : int(box[3] * height), int(box[0] * width) : int(box[2] * width)]
    assert inside.mean() > image.mean() + 5
    example = next(one for one in found if name(one) == "n90000003_1.JPEG")
    assert example.features.feature["image/object/bbox/xmin"].WhichOneof("kind") == "float_list"
    assert value(example, "image/object/bbox/xmin") == []
    wanted = (miniature.raw / "validation_synset_labels.txt").read_text().split()
    found = sorted(examples(miniature.records, "validation"), key=name)
    assert [value(one, "image/class/synset").decode() for one in found] == wanted


@pytest.fixture(scope="module")
def in_40_shards(miniature: Miniature, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out: Path = tmp_path_factory.mktemp("forty")
    done = run(PREPROCESS, *forty(miniature, out))
    assert done.returncode == 0, done.stderr
    return out


def forty(miniature: Miniature, out: Path, processes: int = 2) -> list[str]:
    return [
        *(f"--raw_data_dir={miniature.raw}", f"--output_dir={out}", "--subset=train", "--train_shards=40"),
        f"--num_processes={processes}",
    ]


def test_interrupted_it_goes_on(miniature: Miniature, in_40_shards: Path, tmp_path: Path) -> None:
    """First by Ctrl-C, then with no chance to clean up."""
    out = tmp_path / "out"
    kept: dict[Path, int] = {}
    for blow in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            command(PREPROCESS, *forty(miniature, out, processes=1)),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=ENVIRONMENT,
            text=True,
            start_new_session=True,
        )
        deadline = time.monotonic() + 150
        while len(list(out.glob("train-*"))) < len(kept) + 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGSTOP)  # else it might be done before the blow falls
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(blow)
        os.killpg(process.pid, signal.SIGCONT)
        _, errors = process.communicate(timeout=100)
        assert process.returncode != 0 and "Traceback" not in errors
        assert blow == signal.SIGKILL or "Start it again" in errors
        assert psutil.wait_procs(children, timeout=60)[1] == []
        shards = list(out.glob("train-*"))
        assert len(kept) < len(shards) < 40
        assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
        kept = {path: path.stat().st_mtime_ns for path in shards}
        assert all(path.read_bytes() == (in_40_shards / path.name).read_bytes() for path in shards)
    done = run(PREPROCESS, *forty(miniature, out))
    assert done.returncode == 0 and f"{len(kept)} of 40 shards are there already" in done.stderr
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in in_40_shards.iterdir())
    assert all(path.read_bytes() == (in_40_shards / path.name).read_bytes() for path in out.iterdir())


def test_other_images_or_shards_are_not_mixed_in(miniature: Miniature, in_40_shards: Path) -> None:
    other = [*forty(miniature, in_40_shards), "--train_shards=20"]
    done = run(PREPROCESS, *other)
    assert done.returncode != 0 and "40 shards of 'train' that were made from other images" in done.stderr
    done = run(PREPROCESS, *other, "--overwrite")
    assert done.returncode == 0 and len(list(in_40_shards.glob("train-*"))) == 20, done.stderr


def test_unreadable_images_are_named(miniature: Miniature, tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    shutil.copytree(miniature.raw / "train", raw / "train")
    (raw / "train" / "n90000004" / "n90000004_7.JPEG").write_bytes(b"no image")
    cut = raw / "train" / "n90000005" / "n90000005_8.JPEG"
    cut.write_bytes(cut.read_bytes()[:-600])
    flags = (f"--raw_data_dir={raw}", f"--output_dir={out}", "--subset=train", "--train_shards=40")
    done = run(PREPROCESS, *flags)
    assert done.returncode != 0 and "2 unreadable images" in done.stderr and "--skip_corrupt" in done.stderr
    for bad in ("n90000004_7.JPEG", "n90000005_8.JPEG"):
        assert f"{bad}: not a readable image" in done.stderr
    assert 38 <= len(list(out.glob("train-*"))) < 40
    done = run(PREPROCESS, *flags, "--skip_corrupt")
    assert done.returncode == 0 and len(list(out.glob("train-*"))) == 40, done.stderr
    assert len(examples(out, "train")) == 398


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no small file system here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_full_disk(miniature: Miniature, small_disk: Path) -> None:
    done = run(PREPROCESS, *forty(miniature, small_disk))
    assert done.returncode != 0 and "No space left on device; free some space" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    shards = {path.name for path in small_disk.glob("train-*")}
    assert 0 < len(shards) < 40 and not list(small_disk.glob(".*partial"))
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    done = run(PREPROCESS, *forty(miniature, small_disk))
    assert done.returncode == 0 and f"{len(shards)} of 40 shards are there already" in done.stderr, (
        done.stderr
    )


def test_resized(miniature: Miniature, tmp_path: Path) -> None:
    threads = ("--num_preprocess_threads", "60", "--num_intra_threads", "2", "--num_inter_threads", "2")
    flags = ("-d", "imagenet", "-i", miniature.records, "-o", tmp_path, "--subset_name", "train", *threads)
    done = run(RESIZER, *flags, "--size", "70")
    assert done.returncode == 0 and "train: 400 images written" in done.stdout, done.stderr
    old, new = (
        {name(one): one for one in examples(place, "train")} for place in (miniature.records, tmp_path)
    )
    assert list(old) == list(new)  # the order too
    shrunk = 0
    for before, after in zip(old.values(), new.values(), strict=True):
        sides = [[value(one, f"image/{side}") for side in ("height", "width")] for one in (before, after)]
        if min(sides[0]) <= 70:
            assert after == before
            continue
        shrunk += 1
        assert min(sides[1]) == 70 and abs(sides[1][0] / sides[1][1] - sides[0][0] / sides[0][1]) < 0.02
        small, large = (tf.io.decode_jpeg(value(one, "image/encoded")) for one in (after, before))
        assert list(small.shape) == [*sides[1], 3]
        assert (
            np.abs(tf.image.resize(large, sides[1], antialias=True) - tf.cast(small, tf.float32)).mean() < 12
        )
        for one in (before, after):
            for key in ("image/encoded", "image/height", "image/width"):
                del one.features.feature[key]
        assert after == before
    assert 100 < shrunk < 400
    done = run(RESIZER, *flags)
    assert done.returncode != 0 and "with other settings" in done.stderr
    done = run(RESIZER, *flags, "--size", "70")
    assert done.returncode == 0 and "8 of 8 shards are there already" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((PREPROCESS,), "--local_scratch_dir is needed"),
        ((PREPROCESS, "--local_scratch_dir=/nowhere", "--train_shards=0"), "must be at least 1"),
        (
            (PREPROCESS, "--local_scratch_dir=/no", "--imagenet_username=me", "--imagenet_access_key=x"),
            "Log in as me at image-net.org",
        ),
        ((RESIZER, "-d", "cifar", "-i", "a", "-o", "b"), "invalid choice: 'cifar'"),
        ((RESIZER, "-i", "/nowhere", "-o", "b"), "-i /nowhere has no files train-00000-of"),
        ((RESIZER, "-i", "a", "-o", "a"), "-i and -o must be different"),
        (("utils/make_miniature_imagenet.py", "/"), "exists already"),
    ],
)
def test_mistakes(words: tuple[str, ...], answer: str) -> None:
    done = run(*words)
    assert done.returncode != 0 and answer in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_mistakes_in_the_raw_data(tmp_path: Path, miniature: Miniature) -> None:
    raw, flags = tmp_path / "raw", (f"--raw_data_dir={tmp_path / 'raw'}", f"--output_dir={tmp_path / 'out'}")
    (raw / "train").mkdir(parents=True)
    done = run(PREPROCESS, *flags, "--subset=train")
    assert done.returncode != 0 and "has no .JPEG files" in done.stderr, done.stderr
    shutil.copytree(miniature.raw / "validation", raw / "validation")
    (raw / "validation_synset_labels.txt").write_text("n90000001\n")
    for wrong, answer in (
        ("--subset=validation", "has 1 synsets, but"),
        ("--synsets=nowhere", "can't be read"),
    ):
        done = run(PREPROCESS, *flags, wrong)
        assert done.returncode != 0 and answer in done.stderr and "Traceback" not in done.stderr, done.stderr
