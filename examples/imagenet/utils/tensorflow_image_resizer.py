"""Makes a smaller copy of a TFRecord data set, as training needs no more pixels than that:

    python tensorflow_image_resizer.py -d imagenet -i tf_records -o resized --subset_name train

The shorter side of larger images becomes --size pixels; smaller images are copied as they are. All other
fields of the records stay, and so do the names of the files. Started again it goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from progress import Progress
from tfrecords import claim, whole_file


def find(directory: Path, subset: str) -> list[Path]:
    """The shards to read; exits if there are none."""
    found = sorted(directory.glob(f"{subset}-[0-9]*-of-[0-9]*"))
    if not found:
        sys.exit(f"-i {directory} has no files {subset}-00000-of-...: preprocess_imagenet.py makes them")
    return found


def pipeline(path: Path, options: argparse.Namespace) -> Any:
    """Each record of a file, with its image as it shall become, and its height and width."""
    import tensorflow as tf

    def shrink(serialized: Any) -> tuple[Any, Any, Any, Any]:
        features = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_single_example(serialized, features)["image/encoded"]
        shape = tf.image.extract_jpeg_shape(encoded)
        shorter = tf.reduce_min(shape[:2])
        target = tf.cast(tf.round(shape[:2] * options.size / shorter), tf.int32)

        def smaller() -> Any:
            image = tf.image.resize(tf.image.decode_jpeg(encoded, channels=3), target, antialias=True)
            image = tf.cast(tf.round(tf.clip_by_value(image, 0.0, 255.0)), tf.uint8)
            return tf.image.encode_jpeg(image, quality=options.quality, chroma_downsampling=True)

        larger = shorter > options.size
        new = tf.cond(larger, smaller, lambda: encoded)
        size = tf.where(larger, target, shape[:2])
        return serialized, new, size[0], size[1]

    records = tf.data.TFRecordDataset(str(path))
    return records.map(shrink, num_parallel_calls=options.num_preprocess_threads).prefetch(16)


def resize(path: Path, options: argparse.Namespace) -> int:
    """Makes one file; returns how many images it has."""
    import tensorflow as tf

    images = 0
    with whole_file(options.output_dir / path.name) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for serialized, encoded, height, width in pipeline(path, options):
            example = tf.train.Example.FromString(serialized.numpy())
            feature = example.features.feature
            feature["image/encoded"].bytes_list.value[0] = encoded.numpy()
            feature["image/height"].int64_list.value[:] = [int(height)]
            feature["image/width"].int64_list.value[:] = [int(width)]
            writer.write(example.SerializeToString())
            images += 1
    return images


def run(options: argparse.Namespace) -> None:
    """Makes the files that are missing."""
    paths = find(options.input_dir, options.subset_name)
    settings = [f"size {options.size} quality {options.quality}"]
    claim(
        options.output_dir,
        options.subset_name,
        [*settings, *(f"{path.name} {path.stat().st_size}" for path in paths)],
        options.overwrite,
    )
    missing = [path for path in paths if not (options.output_dir / path.name).exists()]
    done, images = len(paths) - len(missing), 0
    if done:
        print(f"{options.subset_name}: {done} of {len(paths)} shards are there already", file=sys.stderr)
    if missing:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(options.num_intra_threads)
        tf.config.threading.set_inter_op_parallelism_threads(options.num_inter_threads)
        tf.config.set_visible_devices([], "GPU")
    progress = Progress(options.subset_name, len(paths))
    for path in missing:
        try:
            images += resize(path, options)
        except tf.errors.ResourceExhaustedError as error:
            sys.exit(
                f"{options.output_dir}: {_first_line(error)}; make room and start again: whole files are kept"
            )
        except tf.errors.OpError as error:
            sys.exit(f"{path}: {_first_line(error)}; make this file again with preprocess_imagenet.py")
        done += 1
        progress.show(done, images)
    print(f"{options.subset_name}: {images} images written to {options.output_dir}")


def _first_line(error: Exception) -> str:
    return str(getattr(error, "message", error)).splitlines()[0]


def parse() -> argparse.Namespace:
    """Exits with a message if something is wrong."""
    parser = argparse.ArgumentParser(
        description="A copy of a TFRecord data set with smaller images.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "-d", "--dataset_name", choices=["imagenet"], default="imagenet", help="keys of the records"
    )
    parser.add_argument("-i", "--input_dir", type=Path, required=True, help="directory of the TFRecords")
    parser.add_argument("-o", "--output_dir", type=Path, required=True, help="directory for the new ones")
    parser.add_argument(
        "--subset_name", default="train", help="beginning of the files' names: train or validation"
    )
    parser.add_argument("--size", type=int, default=480, help="pixels of the shorter side")
    parser.add_argument("--quality", type=int, default=95, help="of the JPEGs")
    cores = os.cpu_count() or 1
    parser.add_argument("--num_preprocess_threads", type=int, default=cores, help="images at the same time")
    parser.add_argument(
        "--num_intra_threads", type=int, default=0, help="threads within an operation, 0: cores"
    )
    parser.add_argument("--num_inter_threads", type=int, default=0, help="operations at a time, 0: cores")
    parser.add_argument("--overwrite", action="store_true", help="replace shards made with other settings")
    options = parser.parse_args()
    if options.size < 1 or options.num_preprocess_threads < 1 or not 1 <= options.quality <= 100:
        parser.error("--size and --num_preprocess_threads must be at least 1, and --quality from 1 to 100")
    if min(options.num_intra_threads, options.num_inter_threads) < 0:
        parser.error("--num_intra_threads and --num_inter_threads must be at least 0")
    if options.input_dir.resolve() == options.output_dir.resolve():
        parser.error("-i and -o must be different directories")
    return options


def main() -> None:
    """Entry point."""
    options = parse()
    try:
        run(options)
    except KeyboardInterrupt:
        sys.exit("Interrupted. Start it again to go on: complete shards are kept")
    except OSError as error:
        sys.exit(f"{error.filename or options.output_dir}: {error.strerror or error}")


if __name__ == "__main__":
    main()
