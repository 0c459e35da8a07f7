"""Is a file the RGB JPEG that it should be? What can be mended is mended."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    from PIL import Image
except ImportError:
    sys.exit("Images are checked with Pillow: pip install pillow")

QUALITY = 95  # of images that have to be encoded again


@dataclass(frozen=True)
class Checked:
    """A good image, and what had to be done to it."""

    encoded: bytes
    width: int
    height: int
    repair: str | None


def check(path: Path) -> Checked:
    """The bytes of an RGB JPEG with this picture. ValueError names the file if there is no picture in it."""
    data = path.read_bytes()
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()  # decodes everything: a file that was cut off is found here
            kind, mode = image.format, image.mode
            if kind == "JPEG" and mode == "RGB":
                return Checked(data, image.width, image.height, None)
            good = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise many kinds
        raise ValueError(f"{path}: not a readable image: {error}") from error
    out = io.BytesIO()
    good.save(out, "JPEG", quality=QUALITY)
    return Checked(out.getvalue(), good.width, good.height, f"{path}: {kind} in {mode} became JPEG in RGB")
