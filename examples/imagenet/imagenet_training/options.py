"""The command line. TensorFlow is not needed to find mistakes in it."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from imagenet_training.schedule import DECAYS

MODELS = ("resnet50", "resnet8", "resnet20")
DATA_DIR = Path("~/data/tf-imagenet")
LOG_DIR = Path("~/imagenet_resnet")
# Of one epoch of ImageNet: synthetic data have no end of their own.
IMAGENET_IMAGES = 1281167
SYNTHETIC_BATCHES = 1000
PRECISIONS = {"fp32": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Trains ResNet-50 v1.5 on ImageNet, then evaluates it: "
        "horovodrun -np 8 python train_imagenet_resnet_hvd.py --data_dir ~/data/tf-imagenet",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data_dir", type=Path, default=DATA_DIR, help="with train-* and validation-* TFRecords"
    )
    data.add_argument(
        "--synthetic", action="store_true", help="random images; only the speed means something"
    )
    data.add_argument("--num_classes", type=int, default=1000, help="labels in the records are 1 ... this")
    data.add_argument(
        "--image_size", type=int, default=224, help="pixels on each side of the network's input"
    )
    data.add_argument("--num_train_images", type=int, help="saves the time to count the records")
    data.add_argument("--num_threads", type=int, default=5, help="threads that prepare images, per process")
    model = parser.add_argument_group("model")
    model.add_argument("--model", choices=MODELS, default="resnet50", help="the others suit small images")
    model.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of activations and gradients")
    model.add_argument(
        "--fp16", dest="precision", action="store_const", const="fp16", help="--precision fp16"
    )
    model.add_argument("--loss_scale", type=float, default=1024.0, help="with fp16")
    length = parser.add_argument_group("length")
    length.add_argument(
        "--batch_size",
        "-b",
        type=int,
        help="images per step and process (default: 256 with a GPU, 16 without)",
    )
    length.add_argument("--num_epochs", type=float, default=90.0, help="passes over the data")
    length.add_argument(
        "--num_batches", type=int, help=f"steps, instead of epochs (with --synthetic {SYNTHETIC_BATCHES})"
    )
    descent = parser.add_argument_group("descent")
    descent.add_argument(
        "--lr", type=float, help="learning rate at its peak (default: 0.1 for every 256 images in a step)"
    )
    descent.add_argument("--lr_decay_mode", choices=DECAYS, default="poly", help="after the warm-up")
    descent.add_argument("--lr_power", type=float, default=2.0, help="of the polynomial decay")
    descent.add_argument("--warmup_epochs", type=float, default=10.0, help="until the peak is reached")
    descent.add_argument("--momentum", type=float, default=0.9, help="of the gradient descent")
    descent.add_argument(
        "--weight_decay", type=float, default=5e-5, help="part of the weights' squares in FinLoss"
    )
    descent.add_argument("--label_smoothing", type=float, default=0.1, help="0 for none")
    descent.add_argument("--lars", action="store_true", help="a rate for each layer; for very large batches")
    descent.add_argument("--lars_eta", type=float, default=0.002, help="trust in a layer's gradient")
    descent.add_argument("--fp16_allreduce", action="store_true", help="gradients travel as float16")
    run = parser.add_argument_group("run")
    run.add_argument(
        "--log_dir", type=Path, help=f"for checkpoints (default: {LOG_DIR}; none with --synthetic)"
    )
    run.add_argument(
        "--clear_log", action="store_true", help="remove the checkpoints of an earlier training first"
    )
    run.add_argument("--save_interval", type=int, default=1000, help="steps between checkpoints")
    run.add_argument("--display_every", type=int, default=50, help="steps between lines of the table")
    run.add_argument("--eval", action="store_true", help="only evaluate the newest checkpoint")
    run.add_argument("--no_eval", action="store_true", help="only train")
    run.add_argument("--seed", type=int, default=1234, help="for the start weights and the order of images")
    return parser


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Exits with code 2 and a message if something is wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    positive = (
        *(
            "num_classes",
            "image_size",
            "num_train_images",
            "num_threads",
            "loss_scale",
            "batch_size",
            "num_epochs",
        ),
        *("num_batches", "lr", "lars_eta", "save_interval", "display_every"),
    )
    for name in (*positive, "lr_power", "warmup_epochs", "momentum", "weight_decay", "label_smoothing"):
        value = getattr(options, name)
        if value is not None and (value < 0 or not math.isfinite(value) or (name in positive and value == 0)):
            parser.error(f"--{name} {value}: it must be {'above 0' if name in positive else '0 or more'}")
    if options.label_smoothing >= 1 or options.momentum >= 1:
        parser.error("--label_smoothing and --momentum must be below 1")
    if options.eval and (options.no_eval or options.clear_log or options.synthetic):
        parser.error("--eval goes with neither --no_eval nor --clear_log nor --synthetic")
    if options.synthetic:
        options.num_batches = options.num_batches or SYNTHETIC_BATCHES
        options.num_train_images = options.num_train_images or IMAGENET_IMAGES
    elif options.log_dir is None:
        options.log_dir = LOG_DIR
    options.data_dir = options.data_dir.expanduser()
    if options.log_dir is not None:
        options.log_dir = options.log_dir.expanduser()
    return options
