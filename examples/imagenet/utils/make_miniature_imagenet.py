"""Makes a tiny data set in the layout of the raw ImageNet, to try everything without 150 GB:

    python make_miniature_imagenet.py /tmp/miniature/raw_data

Ten classes of shapes in various colours, sizes and places on noise. As in the real one there are images of
different sizes, a CMYK image, a PNG called .JPEG, and bounding boxes for some.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

try:
    from PIL import Image, ImageDraw
except ImportError:
    sys.exit("The pictures are drawn with Pillow: pip install pillow")

Corners = tuple[float, float, float, float]
Painter = Callable[[ImageDraw.ImageDraw, Corners, tuple[int, int, int]], None]


def _polygon(*points: tuple[float, float]) -> Painter:
    def paint(draw: ImageDraw.ImageDraw, corners: Corners, colour: tuple[int, int, int]) -> None:
        left, top, right, bottom = corners
        draw.polygon([(left + x * (right - left), top + y * (bottom - top)) for x, y in points], colour)

    return paint


def _bars(*bars: Corners) -> Painter:
    def paint(draw: ImageDraw.ImageDraw, corners: Corners, colour: tuple[int, int, int]) -> None:
        left, top, right, bottom = corners
        wide, high = right - left, bottom - top
        for x, y, to_x, to_y in bars:
            draw.rectangle((left + x * wide, top + y * high, left + to_x * wide, top + to_y * high), colour)

    return paint


SHAPES: dict[str, tuple[str, Painter]] = {
    "n90000001": ("disc", lambda draw, corners, colour: draw.ellipse(corners, colour)),
    "n90000002": ("square", _bars((0, 0, 1, 1))),
    "n90000003": ("triangle", _polygon((0.5, 0), (1, 1), (0, 1))),
    "n90000004": ("triangle, on its tip", _polygon((0, 0), (1, 0), (0.5, 1))),
    "n90000005": ("ring", lambda draw, corners, colour: draw.ellipse(corners, None, colour, width=7)),
    "n90000006": ("cross, plus sign", _bars((0.35, 0, 0.65, 1), (0, 0.35, 1, 0.65))),
    "n90000007": ("three horizontal bars", _bars((0, 0, 1, 0.2), (0, 0.4, 1, 0.6), (0, 0.8, 1, 1))),
    "n90000008": ("three vertical bars", _bars((0, 0, 0.2, 1), (0.4, 0, 0.6, 1), (0.8, 0, 1, 1))),
    "n90000009": ("diagonal, falling", _polygon((0, 0), (0.3, 0), (1, 0.7), (1, 1), (0.7, 1), (0, 0.3))),
    "n90000010": ("frame", lambda draw, corners, colour: draw.rectangle(corners, None, colour, width=7)),
}
XML = """<annotation><filename>{name}</filename><size><width>{width}</width><height>{height}</height></size>
<object><name>{synset}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax>
<ymax>{box[3]}</ymax></bndbox></object></annotation>
"""


def draw(synset: str, generator: random.Random) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """A picture and where the shape is on it."""
    width, height = generator.randint(64, 96), generator.randint(64, 96)
    noise = np.random.default_rng(generator.randrange(2**32)).integers(0, 70, (height, width, 3), np.uint8)
    image = Image.fromarray(noise)
    side = generator.randint(40, 56)
    left, top = generator.randint(2, width - side - 2), generator.randint(2, height - side - 2)
    colour = (generator.randint(120, 255), generator.randint(120, 255), generator.randint(120, 255))
    box = (left, top, left + side, top + side)
    SHAPES[synset][1](ImageDraw.Draw(image), box, colour)
    return image, box


def save(image: Image.Image, path: Path, odd: str | None) -> None:
    """As JPEG, or as one of the strange files that the real data set has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if odd == "PNG":
        image.save(path, "PNG")
    else:
        (image.convert("CMYK") if odd == "CMYK" else image).save(path, "JPEG", quality=90)


def make(raw: Path, train: int, validation: int, seed: int) -> None:
    """Writes train/, validation/, bounding_boxes/ and the two lists of synsets."""
    generator = random.Random(seed)
    synsets = list(SHAPES)
    for synset in synsets:
        for number in range(train):
            image, box = draw(synset, generator)
            name = f"{synset}_{number}.JPEG"
            odd = {("n90000001", 0): "CMYK", ("n90000002", 0): "PNG"}.get((synset, number))
            save(image, raw / "train" / synset / name, odd)
            if number % 2 == 0:  # not all of the real ones have boxes either
                annotation = raw / "bounding_boxes" / synset / f"{synset}_{number}.xml"
                annotation.parent.mkdir(parents=True, exist_ok=True)
                annotation.write_text(
                    XML.format(name=name, width=image.width, height=image.height, synset=synset, box=box)
                )
    order = [synset for synset in synsets for _ in range(validation)]
    generator.shuffle(order)
    for number, synset in enumerate(order, 1):
        save(draw(synset, generator)[0], raw / "validation" / f"mini_val_{number:08d}.JPEG", None)
    (raw / "validation_synset_labels.txt").write_text("".join(f"{synset}\n" for synset in order))
    (raw / "LOC_synset_mapping.txt").write_text(
        "".join(f"{synset} {text}\n" for synset, (text, _) in SHAPES.items())
    )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description="A data set of drawn shapes in the layout of the raw ImageNet.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("raw_data_dir", type=Path, help="where to write it; must not exist")
    parser.add_argument("--train", type=int, default=40, help="images per class to learn from")
    parser.add_argument("--validation", type=int, default=8, help="images per class to be tested on")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other images")
    options = parser.parse_args()
    if min(options.train, options.validation) < 1:
        parser.error("--train and --validation must be at least 1")
    if options.raw_data_dir.exists():
        parser.error(f"{options.raw_data_dir} exists already: name a new directory")
    try:
        make(options.raw_data_dir, options.train, options.validation, options.seed)
    except OSError as error:
        sys.exit(f"{error.filename or options.raw_data_dir}: {error.strerror or error}")
    print(
        f"{len(SHAPES)} classes with {options.train} + {options.validation} images in {options.raw_data_dir}"
    )


if __name__ == "__main__":
    main()
