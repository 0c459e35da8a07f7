"""What all examples do alike: their flags, each rank's share of the digits, errors as messages."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.numpy as hvd


def new_parser(what: str) -> argparse.ArgumentParser:
    """`what` the program does, for --help, which also shows the defaults."""
    return argparse.ArgumentParser(
        description=f"{what}: horovodrun -np 2 python {Path(sys.argv[0]).name}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def learning_parser(
    what: str, batch_size: int, lr: float, seed: int = 0, batch: str = "digits per step and process"
) -> argparse.ArgumentParser:
    """With the flags of everything that learns; the defaults are the example's own."""
    parser = new_parser(what)
    parser.add_argument(
        "--batch-size", "--batch_size", type=at_least_one, default=batch_size, help=batch, metavar="N"
    )
    parser.add_argument("--lr", type=above_zero, default=lr, help="learning rate of one process")
    parser.add_argument("--seed", type=not_negative, default=seed, help="for all that is left to chance")
    return parser


def training_parser(what: str, batch_size: int = 64, lr: float = 0.001) -> argparse.ArgumentParser:
    """For a training on MNIST."""
    parser = learning_parser(what, batch_size, lr)
    parser.add_argument("--data-dir", metavar="DIR", help="mnist.npz or the four IDX files of MNIST")
    parser.add_argument("--limit", type=at_least_one, metavar="N", help="use only N digits for training")
    return parser


def elastic_parser(what: str, lr: float) -> argparse.ArgumentParser:
    """For one whose processes come and go."""
    parser = training_parser(what, 32, lr)
    add_counts(parser, epochs=(5, "passes over the data"))
    return parser


def epochs_parser(what: str, epochs: int, batch_size: int = 64, lr: float = 0.001) -> argparse.ArgumentParser:
    """For one that goes through the digits several times and may draw its curves."""
    parser = training_parser(what, batch_size, lr)
    add_counts(parser, epochs=(epochs, "passes over the data"))
    parser.add_argument("--summary-dir", metavar="DIR", help="write curves (PNG, HTML) and figures there")
    return parser


def add_counts(parser: argparse.ArgumentParser, **counts: tuple[int, str]) -> None:
    """Flags for whole numbers above 0: `batch_size=(32, "digits")` is --batch-size, 32 by default."""
    for name, (default, meaning) in counts.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=at_least_one, default=default, help=meaning)


def add_checkpoint_dir(
    parser: argparse.ArgumentParser, default: str | None = None, meaning: str = "rank 0 saves there"
) -> None:
    """--checkpoint-dir."""
    parser.add_argument("--checkpoint-dir", default=default, metavar="DIR", help=meaning)


def at_least_one(text: str) -> int:
    """A type for argparse."""
    return int(_number_above_zero(text, int, "a whole number above 0"))


def above_zero(text: str) -> float:
    """A type for argparse."""
    return _number_above_zero(text, float, "a number above 0")


def not_negative(text: str) -> int:
    """A type for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def file_ending_with(*endings: str) -> Callable[[str], str]:
    """A type for argparse: Keras knows formats by these endings."""

    def checked(text: str) -> str:
        if not text.endswith(endings):
            raise argparse.ArgumentTypeError(f"{text!r}: the name must end with {' or '.join(endings)}")
        return text

    return checked


def share_of(rank: int, size: int, *arrays: Any) -> list[Any]:
    """The rank's part of each array; parts of one size, so that all ranks make equally many steps."""
    count = len(arrays[0])
    share = count // size
    if share == 0:
        sys.exit(f"{count} digits are too few for {size} processes: raise --limit")
    return [array[rank * share : (rank + 1) * share] for array in arrays]


@contextlib.contextmanager
def told_errors(*kinds: type[Exception]) -> Iterator[None]:
    """An OSError, or one of `kinds`, ends the program with a message: a full disk needs no traceback."""
    try:
        yield
    except (OSError, *kinds) as error:
        if not hvd.is_initialized():
            raise
        sys.exit(f"rank {hvd.rank()}: {error}")


def _number_above_zero(text: str, kind: type[float], wanted: str) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return number
