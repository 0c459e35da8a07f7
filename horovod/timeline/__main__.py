"""``python -m horovod.timeline merge|explain``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from horovod.timeline import text
from horovod.timeline.files import contents_of, load, write_merged
from horovod.timeline.merge import longest, merged


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        return _merge(args) if args.what == "merge" else _explain(args)
    except (OSError, ValueError) as error:
        print(f"horovod.timeline: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m horovod.timeline", description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    merge = commands.add_parser("merge", help="make one file that viewers open out of the ranks' parts")
    merge.add_argument(
        "parts", nargs="+", type=Path, metavar="FILE", help="parts, the timeline beside them, or a merged one"
    )
    merge.add_argument(
        "-o", dest="target", required=True, type=Path, metavar="FILE", help=".gz compresses it"
    )
    merge.add_argument("--steps", type=_window, metavar="A:B", help="show only these steps")
    explain = commands.add_parser("explain", help="say where the time went, and what to do")
    explain.add_argument("parts", nargs="+", type=Path, metavar="FILE", help="a merged timeline, or parts")
    explain.add_argument("--json", action="store_true", help="for programs")
    explain.add_argument("--against", type=Path, metavar="FILE", help="compare with another timeline")
    return parser


def _window(word: str) -> tuple[int, int]:
    first, colon, last = word.partition(":")
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise argparse.ArgumentTypeError(f"{word!r} is not two numbers as 50:60")
    return int(first), int(last)


def _merge(args: argparse.Namespace) -> int:
    contents, reasons = contents_of(args.parts)
    worlds = write_merged(contents, args.target, args.steps, reasons)
    for world in worlds:
        ranks, hosts = text.counted(len(world.traces), "rank"), text.counted(len(world.clocks), "host")
        print(f"{args.target}: {ranks} on {hosts}")
        for note in world.notes():
            print(note)
    return 0


def _explain(args: argparse.Namespace) -> int:
    result = longest(merged(load(args.parts))).explain()
    if args.against is not None:
        before = longest(merged(load([args.against]))).explain()
        if args.json:
            print(json.dumps({"now": text.as_json(result), "before": text.as_json(before)}))
        else:
            print("\n".join(text.comparison(result, before)))
        return 0
    if args.json:
        print(json.dumps(text.as_json(result)))
    else:
        print("\n".join([*text.sentences(result), *text.table(result)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
