"""python -m horovod.elastic: looks at the events file of an elastic job."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from horovod.elastic.history import read
from horovod.elastic.plot import drawn


def main(words: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m horovod.elastic", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="plot")
    plot = commands.add_parser("plot", help="draw which slots were in use when, as SVG")
    plot.add_argument("events", type=Path, help="what horovodrun --events-file has written")
    plot.add_argument("-o", "--output", type=Path, help="default: the same name with .svg")
    options = parser.parse_args(words)
    output: Path = options.output or options.events.with_suffix(".svg")
    try:
        history = read(options.events.read_text(encoding="utf-8"))
        output.write_text(drawn(history), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"python -m horovod.elastic plot: {error}", file=sys.stderr)
        return 1
    print(f"{output}: {len(history.worlds)} generations in {history.end - history.start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
