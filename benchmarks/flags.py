"""What the benchmarks' command lines have in common, and the line that says where figures were measured."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re

from horovod.bench.options import positive


def new_parser(description: str) -> argparse.ArgumentParser:
    """With --write; --help shows the defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


def in_turns_parser(description: str, rounds: int, seconds: float) -> argparse.ArgumentParser:
    """For contenders that take turns in the same processes."""
    parser = new_parser(description)
    parser.add_argument("--np", type=positive, default=2, help="number of processes")
    parser.add_argument("--rounds", type=positive, default=rounds, help="how often each is measured")
    parser.add_argument("--seconds", type=above_zero, default=seconds, help="how long a round takes, about")
    return parser


def above_zero(text: str) -> float:
    """A type for argparse."""
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) == 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return float(text)


def circumstances(what: str) -> str:
    """`what` was measured, on this machine, now."""
    return (
        f"{what}, Linux {platform.release()}, Python {platform.python_version()}, "
        f"{datetime.date.today()}, load {os.getloadavg()[0]:.1f}."
    )
