"""Random collectives, submitted by each rank in its own order and at its own pace, and every result checked.

    horovodrun -np 4 python tests/mixture/program_mixture.py --seed 7 --seconds 30

A seed gives the same operations each time (with the same number of ranks), though not the same timing; "new",
the default, is one that nobody has tried.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from mixture_plan import FEATURES, Plan
from mixture_rank import Rank, Wrong
from util_model import groups

import horovod.numpy as hvd
from horovod._bootstrap.world import tree


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", nargs="*", default=["new"], help="several are run one after another")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each seed")
    parser.add_argument("--windows", type=int, default=-1, help="end after so many, whatever the time")
    parser.add_argument("--fan-out", type=int, help="of the tree of control connections")
    features = "\n".join(f"  {name}: {what}" for name, what in FEATURES.items())
    parser.epilog = f"features for --without:\n{features}"
    parser.add_argument("--without", nargs="*", default=[], choices=FEATURES, metavar="FEATURE")
    return parser.parse_args()


def mix(seed: int, options: argparse.Namespace) -> None:
    if hvd.rank() == 0:
        print(f"seed {seed}, {hvd.size()} ranks", flush=True)
    rank = Rank(Plan(seed, hvd.size(), frozenset(options.without)), seed)
    try:
        rank.run(options.seconds, options.windows)
    except (Wrong, hvd.HorovodInternalError, ValueError) as error:
        # The others fail in this rank's wake, with an error that names it.
        text = traceback.format_exc() if isinstance(error, ValueError) else str(error)
        print(f"WRONG on rank {hvd.rank()} of {hvd.size()}, seed {seed}: {text}", file=sys.stderr, flush=True)
        os._exit(1)
    compared = hvd.allreduce(np.array(rank.compared), op=hvd.Sum, name="results compared")
    if hvd.rank() == 0:
        met = int(hvd.metrics()["operations_without_coordinator_total"])
        print(f"{rank.operations} operations, {compared} results compared, seed {seed}", flush=True)
        print(f"{met} so far without the coordinator", flush=True)


def main() -> None:
    options = arguments()
    if options.fan_out is not None:
        tree.FAN_OUT = options.fan_out
    hvd.init(process_sets="dynamic")
    groups()  # a collective, so not in the middle of others
    for given in options.seed:
        new = int.from_bytes(os.urandom(4), "little")
        mix(hvd.broadcast_object(new if given == "new" else int(given), name="seed"), options)


if __name__ == "__main__":
    main()
