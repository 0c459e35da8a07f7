"""`python -m horovod.bench`: rank 0 prints, and writes the JSON file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import horovod.numpy as hvd
from horovod._bootstrap.identity import detect
from horovod._bootstrap.identity.variables import SIZE
from horovod.bench import cases, report, tune
from horovod.bench.options import BENCHMARKS, Options, parse, without_np
from horovod.bench.relaunch import relaunch
from horovod.bench.results import Row, machine

_DEFAULT_NP = 2
_USAGE_ERROR = 2


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    options = parse(argv)
    try:
        place = detect()
    except ValueError as error:
        return _refuse(str(error))
    if SIZE not in os.environ and place.size == 1:
        return relaunch(options.np or _DEFAULT_NP, without_np(argv))
    if options.np not in (None, place.size):
        return _refuse(f"--np {options.np}, but horovodrun has started {place.size}: leave --np out")
    if options.tune and place.size == 1:
        return _refuse("--tune needs two ranks or more: alone there is nothing to tune")
    if options.tune:
        tune.prepare()
    hvd.init()
    (_tune if options.tune else _run)(options)
    hvd.shutdown()
    return 0


def _run(options: Options) -> None:
    facts = machine()
    screen = report.console() if hvd.rank() == 0 else None
    if screen:
        screen.print(report.headline(hvd.size(), options.dtype.name, facts), soft_wrap=True)
    rows: list[Row] = []
    for benchmark in options.only:
        found = list(cases.run(benchmark, options))
        if screen:
            screen.print(report.table(benchmark, BENCHMARKS[benchmark], found))
        rows += found
    if screen and options.json is not None:
        report.write_json(options.json, hvd.size(), facts, rows)
        screen.print(f"Figures written to {options.json}", soft_wrap=True)


def _tune(options: Options) -> None:
    found = tune.run()
    if hvd.rank() == 0:
        print(tune.verdict(found), flush=True)


def _refuse(text: str) -> int:
    print(f"horovod.bench: {text}", file=sys.stderr)
    return _USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
