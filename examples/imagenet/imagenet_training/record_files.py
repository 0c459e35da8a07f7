"""The TFRecord files of a subset and how many images are in them."""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import horovod.numpy as hvd


def find(directory: Path, subset: str) -> list[Path]:
    """The shards, in order. Exits if there are none or if some are missing."""
    if not directory.is_dir():
        sys.exit(f"--data_dir {directory} does not exist: docs/imagenet.md tells how to prepare the data")
    named = {
        path: re.fullmatch(rf"{subset}-(\d+)-of-(\d+)", path.name) for path in sorted(directory.iterdir())
    }
    found = {int(match[1]): (path, int(match[2])) for path, match in named.items() if match is not None}
    if not found:
        sys.exit(f"{directory} has no files {subset}-00000-of-...: is it the right --data_dir?")
    counts = {count for _, count in found.values()}
    if counts != {len(found)} or max(found) != len(found) - 1:
        sys.exit(
            f"{directory} has {len(found)} files of '{subset}', but their names speak of "
            f"{' and '.join(map(str, sorted(counts)))}: was everything copied?"
        )
    return [found[index][0] for index in sorted(found)]


def records(path: Path) -> int:
    """How many records a file has, from their lengths alone. Exits if the file was cut off."""
    number, place, size = 0, 0, path.stat().st_size
    with path.open("rb", buffering=0) as file:
        while place < size:
            header = os.pread(file.fileno(), 12, place)
            if len(header) == 12:
                place += 16 + struct.unpack("<Q", header[:8])[0]
            if len(header) < 12 or place > size:
                sys.exit(f"{path} ends in the middle of a record: copy or make it again")
            number += 1
    return number


def count(paths: Iterable[Path], subset: str) -> int:
    """Records in all files; every rank looks at its share of them."""
    mine = sum(map(records, list(paths)[hvd.rank() :: hvd.size()]))
    return int(hvd.allreduce(np.array([mine], np.int64), op=hvd.Sum, name=f"{subset} images")[0])
