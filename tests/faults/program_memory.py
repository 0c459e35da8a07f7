"""Notes how much the resident memory grows at most during an allreduce of 512 MiB in place."""

import sys
from pathlib import Path

import numpy as np
from fault_notes import Notes

import horovod.numpy as hvd

MIB = 1 << 20


def resident(field: str) -> int:
    """VmRSS or VmHWM (the peak); both count shared memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field}")


array = np.ones(512 * MIB // 4, np.float32)
before = resident("VmRSS")
hvd.init()
Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
hvd.allreduce_(array, name="large", op=hvd.Sum)
growth = resident("VmHWM") - before
assert array.min() == array.max() == hvd.size()
Notes(Path(sys.argv[-1])).write(f"memory-{hvd.rank()}", mib=growth / MIB)
