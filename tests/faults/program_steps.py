"""Allreduces until the note `enough` is there; notes `running-<rank>` at the first step and `done-<rank>`."""

import sys
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

notes = Notes(Path(sys.argv[-1]))
hvd.init()
rank, size = hvd.rank(), hvd.size()
enough, steps = False, 0
while not enough:
    assert (
        hvd.allreduce(np.full(1 << 18, rank, np.float32), name="step", op=hvd.Sum)[-1]
        == size * (size - 1) / 2
    )
    if steps == 0:
        notes.write(f"running-{rank}")
    steps += 1
    # All ranks must do the same number of steps.
    mine = np.array([rank == 0 and notes.read("enough") is not None], np.int32)
    enough = bool(hvd.allreduce(mine, name="enough", op=hvd.Max)[0])
notes.write(f"done-{rank}", steps=steps)
