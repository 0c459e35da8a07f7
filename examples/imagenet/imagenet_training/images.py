"""tf.data pipelines: records to batches of images and labels, and batches out of nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

MEAN = (123.68, 116.78, 103.94)
DEVIATION = (58.4, 57.1, 57.4)
SHUFFLE = 10000  # images from which the next one is drawn
CROP = 0.875  # part of the shorter side that an evaluated image keeps
READERS = 10  # files at a time


def _parse(serialized: Any, classes: int) -> tuple[Any, Any]:
    """The encoded image and its label, from 0 on."""
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/filename": tf.io.FixedLenFeature([], tf.string, ""),
    }
    found = tf.io.parse_single_example(serialized, features)
    label = found["image/class/label"]
    problem = ["the record of", found["image/filename"], "has label", label]
    problem.append(f"but with --num_classes {classes} it must be from 1 to {classes}")
    with tf.control_dependencies([tf.debugging.Assert((label >= 1) & (label <= classes), problem)]):
        return found["image/encoded"], tf.cast(label - 1, tf.int32)


def _distorted(encoded: Any, size: int) -> Any:
    """A random part of the image, perhaps mirrored."""
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.image.extract_jpeg_shape(encoded),
        tf.zeros([1, 0, 4]),
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(0.08, 1.0) if size > 64 else (0.5, 1.0),  # small images have no parts worth seeing
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    return tf.image.random_flip_left_right(tf.image.resize(image, [size, size]))


def _central(encoded: Any, size: int) -> Any:
    """The middle of the image."""
    shape = tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.float32)
    side = tf.cast(CROP * tf.reduce_min(shape), tf.int32)
    begin = (tf.cast(shape, tf.int32) - side) // 2
    window = tf.stack([begin[0], begin[1], side, side])
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
    return tf.image.resize(image, [size, size])


def _normalized(image: Any, size: int) -> Any:
    return tf.ensure_shape((image - MEAN) / DEVIATION, [size, size, 3])


def file_sequence(paths: Sequence[Path], rank: int, size: int, seed: int) -> Any:
    """The files that a rank reads, endlessly.

    All ranks shuffle the files in the same way, epoch after epoch, and take turns in that sequence. So they
    have equal shares whatever the number of files is, and other ones in every epoch.
    """
    names = [str(path) for path in paths]
    return tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed=seed).repeat().shard(size, rank)


def training(
    paths: Sequence[Path], options: argparse.Namespace, images: int, rank: int, size: int, seed: int
) -> Any:
    """Endless batches of this rank's share of `images` images."""
    records = file_sequence(paths, rank, size, seed).interleave(
        tf.data.TFRecordDataset,
        cycle_length=READERS,
        num_parallel_calls=options.num_threads,
        deterministic=True,
    )

    def prepare(serialized: Any) -> tuple[Any, Any]:
        encoded, label = _parse(serialized, options.num_classes)
        return _normalized(_distorted(encoded, options.image_size), options.image_size), label

    return (
        records.shuffle(min(SHUFFLE, 1 + images // size), seed=seed + rank)
        .map(prepare, num_parallel_calls=options.num_threads)
        .batch(options.batch_size, drop_remainder=True)
        .prefetch(2)
    )


def evaluation(paths: Sequence[Path], options: argparse.Namespace, rank: int, size: int) -> Any:
    """This rank's share: every image is in exactly one rank's. The last batch may be smaller."""
    names = [str(path) for path in paths]
    if len(names) >= size:
        records = tf.data.TFRecordDataset(names[rank::size])
    else:
        records = tf.data.TFRecordDataset(names).shard(size, rank)

    def prepare(serialized: Any) -> tuple[Any, Any]:
        encoded, label = _parse(serialized, options.num_classes)
        return _normalized(_central(encoded, options.image_size), options.image_size), label

    return records.map(prepare, num_parallel_calls=options.num_threads).batch(options.batch_size).prefetch(2)


def checked(batches: Any) -> Iterator[tuple[Any, Any]]:
    """The batches; exits with a message if a record, label or image among them is bad."""
    try:
        yield from batches
    except tf.errors.OpError as error:
        message = str(error.message).splitlines()[0].rpartition("}} ")[2]
        sys.exit(f"The images can't be used: {message}. Is --data_dir right, and are its files whole?")


def synthetic(options: argparse.Namespace, seed: int) -> Any:
    """The same random batch again and again: what is measured is the training alone."""
    batch = options.batch_size
    images = tf.random.stateless_normal([batch, options.image_size, options.image_size, 3], [seed, 0])
    labels = tf.random.stateless_uniform([batch], [seed, 1], 0, options.num_classes, tf.int32)
    return tf.data.Dataset.from_tensors((images, labels)).cache().repeat()
