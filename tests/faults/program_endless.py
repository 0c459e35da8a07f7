"""Allreduces for ever; notes `running-<rank>` after the first one."""

import sys
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

hvd.init()
data = np.ones(1 << 20, np.float32)
hvd.allreduce_(data, name="step")
Notes(Path(sys.argv[-1])).write(f"running-{hvd.rank()}")
while True:
    hvd.allreduce_(data, name="step")
