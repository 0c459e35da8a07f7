"""Turns the raw ImageNet data set into TFRecord files:

    python preprocess_imagenet.py --local_scratch_dir=/data/imagenet

reads /data/imagenet/raw_data/{train,validation} and writes /data/imagenet/tf_records. Every image is decoded
once: those that are not RGB JPEGs are converted, unreadable ones are reported by name. Shards appear only
when they are complete, so a run that was interrupted goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import multiprocessing
import os
import signal
import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from image_check import check
from progress import Progress
from raw_imagenet import Picture, box_files, find, read_boxes, read_synsets
from tfrecords import Feature, claim, example, shard_name, write_shard

SUBSETS = ("train", "validation")
DOWNLOAD = """The images have to be downloaded by you, as their licence is between you and image-net.org:

1. Log in{account} at image-net.org and open the download page of ILSVRC2012.
2. Get ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and, if you like, ILSVRC2012_bbox_train_v2.tar.gz.
3. Unpack them so that there are
     {raw}/train/n01440764/*.JPEG ...    one folder per synset
     {raw}/validation/*.JPEG             and {raw}/validation_synset_labels.txt
     {raw}/bounding_boxes/...xml         optional
   docs/imagenet.md has the commands.
4. Start this program again, without an account or access key."""


@dataclass(frozen=True)
class Shard:
    """A file to be written."""

    path: Path
    pictures: list[Picture]
    boxes: dict[str, Path]  # annotation files of these pictures
    skip_corrupt: bool


@dataclass
class Report:
    """What became of a shard. `fatal` is a reason not to go on with others."""

    shards: int = 0
    images: int = 0
    repaired: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    fatal: str | None = None


def features(picture: Picture, boxes: Path | None, report: Report) -> dict[str, Feature]:
    """The record of an image with the customary keys. ValueError if the image or annotation is unreadable."""
    image = check(picture.path)
    found = read_boxes(boxes) if boxes is not None else []
    if image.repair is not None:
        report.repaired.append(image.repair)
    return {
        "image/height": image.height,
        "image/width": image.width,
        "image/colorspace": "RGB",
        "image/channels": 3,
        "image/class/label": picture.label,
        "image/class/synset": picture.synset,
        "image/class/text": picture.text,
        "image/object/bbox/xmin": array("f", (box.xmin for box in found)),
        "image/object/bbox/ymin": array("f", (box.ymin for box in found)),
        "image/object/bbox/xmax": array("f", (box.xmax for box in found)),
        "image/object/bbox/ymax": array("f", (box.ymax for box in found)),
        "image/object/bbox/label": [picture.label] * len(found),
        "image/format": "JPEG",
        "image/filename": picture.path.name,
        "image/encoded": image.encoded,
    }


class CorruptShard(Exception):
    """Ends the writing of a shard that has unreadable images."""


def make_shard(shard: Shard) -> Report:
    """Runs in a worker. With unreadable images nothing is written, unless they are to be skipped."""
    report = Report()

    def examples() -> Iterator[bytes]:
        for picture in shard.pictures:
            try:
                yield example(features(picture, shard.boxes.get(picture.path.stem), report))
                report.images += 1
            except ValueError as error:
                report.bad.append(str(error))
        if report.bad and not shard.skip_corrupt:
            raise CorruptShard

    try:
        write_shard(shard.path, examples())
        report.shards = 1
    except CorruptShard:
        report.images = 0
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space there and start again: complete shards are kept" if full else "see above"
        report.fatal = f"{error.filename or shard.path}: {error.strerror or error}; {hint}"
    return report


def _prepare_worker() -> None:
    # Ctrl-C is for the parent, which ends the workers; they must not outlive it either.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run(shards: list[Shard], total: int, subset: str, processes: int) -> Report:
    """Makes all shards; stops early if one reports that it makes no sense to go on."""
    whole, done = Report(), total - len(shards)
    progress = Progress(subset, total)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _prepare_worker) as pool:
        # Only a few at a time, so that little is thrown away when it has to stop.
        todo = iter(shards)
        running: set[Future[Report]] = {
            pool.submit(make_shard, shard) for shard in islice(todo, 2 * processes)
        }
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for report in (future.result() for future in finished):
                whole.images += report.images
                whole.repaired += report.repaired
                whole.bad += report.bad
                whole.fatal = whole.fatal or report.fatal
                done += report.shards
            if whole.fatal is None:
                running |= {pool.submit(make_shard, shard) for shard in islice(todo, len(finished))}
                progress.show(done, whole.images)
    return whole


def plan(options: argparse.Namespace, subset: str, count: int, synsets: dict[str, str]) -> list[Shard]:
    """The shards that are missing in the output directory."""
    pictures = find(options.raw_data_dir, subset, synsets, options.validation_labels)
    if count > len(pictures):
        sys.exit(f"{count} shards for {len(pictures)} images of '{subset}': lower --{subset}_shards")
    annotations = box_files(options.bounding_boxes)
    claim(
        options.output_dir,
        subset,
        [f"{count} shards", *(f"{p.path.name} {p.label} {p.text}" for p in pictures)],
        options.overwrite,
    )
    shards = []
    for index in range(count):
        path = options.output_dir / shard_name(subset, index, count)
        mine = pictures[index * len(pictures) // count : (index + 1) * len(pictures) // count]
        boxes = {p.path.stem: annotations[p.path.stem] for p in mine if p.path.stem in annotations}
        if not path.exists():
            shards.append(Shard(path, mine, boxes, options.skip_corrupt))
    return shards


def convert(options: argparse.Namespace, subset: str, synsets: dict[str, str]) -> int:
    """One subset; returns the number of unreadable images."""
    count = options.train_shards if subset == "train" else options.validation_shards
    shards = plan(options, subset, count, synsets)
    if len(shards) < count:
        print(f"{subset}: {count - len(shards)} of {count} shards are there already", file=sys.stderr)
    report = run(shards, count, subset, options.num_processes)
    for line in report.repaired:
        print(f"repaired: {line}", file=sys.stderr)
    for line in report.bad:
        print(f"unreadable: {line}", file=sys.stderr)
    if report.fatal is not None:
        sys.exit(report.fatal)
    print(
        f"{subset}: {report.images} images written to {options.output_dir}, {len(report.repaired)} repaired, "
        f"{len(report.bad)} unreadable"
    )
    return len(report.bad)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Exits with a message if something is wrong."""
    parser = argparse.ArgumentParser(
        description="Raw ImageNet to TFRecord files; start it again after an interruption and it goes on.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    home = parser.add_argument_group("places")
    home.add_argument("--local_scratch_dir", type=Path, help="where raw_data is, and tf_records will be")
    home.add_argument("--raw_data_dir", type=Path, help="the raw images, if not LOCAL_SCRATCH_DIR/raw_data")
    home.add_argument("--output_dir", type=Path, help="for the shards, if not LOCAL_SCRATCH_DIR/tf_records")
    home.add_argument(
        "--synsets",
        type=Path,
        metavar="FILE",
        help="'synset name' per line in the order of the "
        "labels; else RAW_DATA_DIR/LOC_synset_mapping.txt or the folders' order",
    )
    home.add_argument(
        "--validation_labels",
        type=Path,
        metavar="FILE",
        help="a synset per validation image; else RAW_DATA_DIR/validation_synset_labels.txt",
    )
    home.add_argument(
        "--bounding_boxes",
        type=Path,
        metavar="DIR",
        help="annotations in XML; else RAW_DATA_DIR/bounding_boxes if it exists",
    )
    account = parser.add_argument_group("image-net.org (tells what to download; nothing is sent anywhere)")
    account.add_argument("--imagenet_username", help="your account")
    account.add_argument("--imagenet_access_key", help="its access key")
    work = parser.add_argument_group("work")
    work.add_argument("--subset", choices=SUBSETS, help="only this one")
    work.add_argument("--train_shards", type=int, default=1024, help="files for train")
    work.add_argument("--validation_shards", type=int, default=128, help="files for validation")
    work.add_argument("--num_processes", type=int, default=os.cpu_count() or 1, help="work at the same time")
    work.add_argument("--skip_corrupt", action="store_true", help="leave unreadable images out")
    work.add_argument("--overwrite", action="store_true", help="replace shards made from other images")
    options = parser.parse_args(argv)
    if options.local_scratch_dir is None and None in (options.raw_data_dir, options.output_dir):
        parser.error("--local_scratch_dir is needed, or both --raw_data_dir and --output_dir")
    if min(options.train_shards, options.validation_shards, options.num_processes) < 1:
        parser.error("--train_shards, --validation_shards and --num_processes must be at least 1")
    options.raw_data_dir = options.raw_data_dir or options.local_scratch_dir / "raw_data"
    options.output_dir = options.output_dir or options.local_scratch_dir / "tf_records"
    options.bounding_boxes = options.bounding_boxes or options.raw_data_dir / "bounding_boxes"
    return options


def main() -> None:
    """Entry point."""
    options = parse()
    subsets = [options.subset] if options.subset else SUBSETS
    missing = [subset for subset in subsets if not (options.raw_data_dir / subset).is_dir()]
    if missing:
        name = f" as {options.imagenet_username}" if options.imagenet_username else ""
        print(f"{options.raw_data_dir} has no folder '{missing[0]}'.", file=sys.stderr)
        sys.exit(DOWNLOAD.format(account=name, raw=options.raw_data_dir))
    try:
        synsets = read_synsets(options.raw_data_dir, options.synsets)
        bad = sum(convert(options, subset, synsets) for subset in subsets)
    except KeyboardInterrupt:
        sys.exit("Interrupted. Start it again to go on: complete shards are kept")
    except BrokenProcessPool:
        sys.exit(
            "A worker process was killed, perhaps for want of memory: start again with fewer --num_processes"
        )
    except OSError as error:
        sys.exit(f"{error.filename or options.output_dir}: {error.strerror or error}")
    if bad and not options.skip_corrupt:
        sys.exit(
            f"{bad} unreadable images (listed above); their shards are not written. Get these files again, "
            "or leave them out with --skip_corrupt, and start again: only these shards will be made"
        )


if __name__ == "__main__":
    main()
