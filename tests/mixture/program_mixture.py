"""Random collectives, submitted by each rank in its own order and at its own pace, and every result checked.

    horovodrun -np 4 python tests/mixture/program_mixture.py --seed 7 --seconds 30

A seed gives the same operations each time (with the same number of ranks), though not the same timing.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from mixture_plan import FEATURES, Plan
from mixture_rank import Rank, Wrong
from util_model import groups

import horovod.numpy as hvd


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--windows", type=int, default=-1, help="end after so many, whatever the time")
    features = "\n".join(f"  {name}: {what}" for name, what in FEATURES.items())
    parser.epilog = f"features for --without:\n{features}"
    parser.add_argument("--without", nargs="*", default=[], choices=FEATURES, metavar="FEATURE")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    hvd.init(process_sets="dynamic")
    new = int.from_bytes(os.urandom(4), "little")
    seed = hvd.broadcast_object(new if options.seed is None else options.seed, name="seed")
    if hvd.rank() == 0:
        print(f"seed {seed}, {hvd.size()} ranks", flush=True)
    groups()  # a collective, so not in the middle of others
    rank = Rank(Plan(seed, hvd.size(), frozenset(options.without)), seed)
    try:
        rank.run(options.seconds, options.windows)
    except (Wrong, hvd.HorovodInternalError, ValueError) as error:
        # Once a rank has ended, the others fail in its wake: only the first has something to tell.
        kind = "WRONG" if isinstance(error, Wrong) else "FAILED"
        text = str(error) if isinstance(error, Wrong) else traceback.format_exc()
        print(
            f"{kind} on rank {hvd.rank()} of {hvd.size()}, seed {seed}: {text}", file=sys.stderr, flush=True
        )
        os._exit(1)
    totals = hvd.allreduce(np.array([rank.operations, rank.compared]), op=hvd.Sum, name="totals")
    if hvd.rank() == 0:
        print(f"{rank.operations} operations, {totals[1]} results compared, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
