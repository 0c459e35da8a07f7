"""The raw data set as image-net.org gives it: which images there are, what is on them, and where."""

from __future__ import annotations

import random
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = {".jpeg", ".jpg"}
SHUFFLE_SEED = 20121015


@dataclass(frozen=True)
class Box:
    """A bounding box in parts of the width and height."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


@dataclass(frozen=True)
class Picture:
    """A file and its class. Labels begin with 1, as 0 stands for the background."""

    path: Path
    label: int
    synset: str
    text: str


def read_synsets(raw: Path, given: Path | None) -> dict[str, str]:
    """Names of the classes by synset, in the order of the labels."""
    file = given or raw / "LOC_synset_mapping.txt"
    if given is None and not file.exists():
        return {folder.name: "" for folder in sorted((raw / "train").iterdir()) if folder.is_dir()}
    pairs = [line.split(maxsplit=1) for line in _read(file).splitlines() if line.strip()]
    synsets = {words[0]: words[1].strip() if len(words) > 1 else "" for words in pairs}
    if not synsets or len(synsets) != len(pairs):
        sys.exit(f"{file}: every line must begin with another synset, such as 'n01440764 tench'")
    return synsets


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{file} can't be read: {error}")


def find(raw: Path, subset: str, synsets: dict[str, str], validation_labels: Path | None) -> list[Picture]:
    """All pictures of 'train' or 'validation', always in the same shuffled order.

    They are in folders named after their synsets. Those of 'validation' may also be in one folder; then a
    file has a synset for each of them, in the order of their names.
    """
    folder = raw / subset
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        sys.exit(
            f"{folder} has no .JPEG files: unpack the archives from image-net.org there (docs/imagenet.md)"
        )
    if subset == "validation" and files[0].parent == folder:
        listed = validation_labels or raw / "validation_synset_labels.txt"
        names = _read(listed).split()
        if len(names) != len(files):
            sys.exit(f"{listed} has {len(names)} synsets, but {folder} has {len(files)} images")
    else:
        names = [path.parent.name for path in files]
    labels = {synset: label for label, synset in enumerate(synsets, 1)}
    pictures = []
    for path, synset in zip(files, names, strict=True):
        if synset not in labels:
            sys.exit(f"{path}: the synset {synset} is not among the {len(labels)} known ones")
        pictures.append(Picture(path, labels[synset], synset, synsets[synset]))
    # A shard should have images of all classes, and the same ones when the program is started again.
    random.Random(SHUFFLE_SEED).shuffle(pictures)
    return pictures


def box_files(folder: Path) -> dict[str, Path]:
    """The annotations (ILSVRC2012_bbox_train_v2 unpacked) by name of the image; none without the folder."""
    return {path.stem: path for path in sorted(folder.rglob("*.xml"))} if folder.is_dir() else {}


def read_boxes(file: Path) -> list[Box]:
    """The boxes of one annotation, cut at the edges; empty ones are left out. ValueError if unreadable."""
    try:
        root = ElementTree.parse(file).getroot()
        width, height = (float(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
        boxes = []
        for found in root.iter("bndbox"):
            x, y = (
                sorted(float(found.findtext(f"{axis}{end}", "")) / length for end in ("min", "max"))
                for axis, length in (("x", width), ("y", height))
            )
            low_x, high_x, low_y, high_y = (min(max(value, 0.0), 1.0) for value in (*x, *y))
            if low_x < high_x and low_y < high_y:
                boxes.append(Box(low_x, low_y, high_x, high_y))
        return boxes
    except (ElementTree.ParseError, ValueError, ZeroDivisionError, OSError) as error:
        raise ValueError(f"{file}: not a readable annotation: {error}") from error
