"""The command line of `python -m horovod.bench`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from horovod.bench.sizes import parse_size

BENCHMARKS = {
    "latency": "operations on 4 bytes, and barrier",
    "allreduce": "sum in place",
    "allgather": "ranks contribute equal parts; the size is that of the result",
    "broadcast": "in place, from rank 0",
    "grads": "ResNet-50's 161 gradients, submitted by name in the order of a backward pass",
}
_DTYPES = ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int32", "int64")
_SIZES = "4K,64K,1M,16M,64M"
_DESCRIPTION = """\
Measures the collectives on this machine. Started by horovodrun it uses those processes; otherwise it starts
processes itself: python -m horovod.bench --np 4"""
_EPILOG = """\
benchmarks:
{}

columns:
  min, p50, p99   time of one operation on its slowest rank
  GB/s            bytes per second as the caller sees it, at p50
  bus GB/s        the same times what each rank must move at least, e.g. 2 (n-1)/n for allreduce
  / memcpy        time at p50 in multiples of a copy of the same bytes, made by all ranks at the same time
                  and in turn with the operation

example:
  HOROVOD_TRANSPORT=tcp python -m horovod.bench --np 2 --only allreduce --sizes 1M,64M --dtype float16"""


@dataclass(frozen=True)
class Options:
    """A checked command line."""

    np: int | None  # None: not given
    only: tuple[str, ...]
    sizes: tuple[int, ...]
    dtype: numpy.dtype[Any]
    iterations: int | None
    seconds: float
    json: Path | None
    tune: bool


def parse(argv: Sequence[str]) -> Options:
    """Exits with 2 and a message if something is wrong."""
    listed = "\n".join(f"  {name:15} {text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m horovod.bench",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # so that without_np() sees what argparse sees
    )
    parser.add_argument(
        "--np", type=positive, metavar="N", help="processes to start (default: 2, or horovodrun's)"
    )
    parser.add_argument(
        "--only", type=_names, metavar="NAMES", default=tuple(BENCHMARKS), help="comma list of benchmarks"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="LIST",
        default=_sizes(_SIZES),
        help=f"comma list of bytes per tensor (default: {_SIZES})",
    )
    parser.add_argument(
        "--dtype", type=_dtype, default=numpy.dtype("float32"), help=f"one of {', '.join(_DTYPES)}"
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument(
        "--iterations",
        type=positive,
        metavar="N",
        help="rounds for each row; small operations run several times a round",
    )
    how_long.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        default=2.0,
        help="time for each row (default: 2, but at least 15 rounds)",
    )
    parser.add_argument("--json", type=_file, metavar="FILE", help="write the figures there as well")
    parser.add_argument(
        "--tune",
        action="store_true",
        help="measure nothing; look for parameters that are faster here (HOROVOD_AUTOTUNE) and keep them for "
        "later jobs with horovodrun --autotune, on as many ranks and hosts",
    )
    return Options(**vars(parser.parse_args(argv)))


def without_np(argv: Sequence[str]) -> list[str]:
    """The arguments for the processes that are started with `--np`."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--np":
            next(words, None)
        elif not word.startswith("--np="):
            kept.append(word)
    return kept


def positive(text: str) -> int:
    """A type for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 3600")
    return value


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in BENCHMARKS:
            raise argparse.ArgumentTypeError(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return names


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(parse_size(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _dtype(text: str) -> numpy.dtype[Any]:
    if text not in _DTYPES:
        raise argparse.ArgumentTypeError(f"no dtype {text!r}; there are {', '.join(_DTYPES)}")
    if text == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise argparse.ArgumentTypeError("bfloat16 in numpy needs: pip install ml_dtypes") from None
        bfloat16: numpy.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return numpy.dtype(text)


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} can't be written: not a file in an existing directory")
    return path
