"""What a type checker tells the users of horovod.torch: a torch tensor goes in, a torch tensor comes out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from util_packages import needs
from util_paths import ROOT

needs("torch", "mypy")

PROGRAM = """\
import torch
import horovod.torch as hvd

tensor = torch.ones(2)
reveal_type(hvd.allreduce(tensor))
reveal_type(hvd.allreduce_(tensor, op=hvd.Sum))
reveal_type(hvd.allreduce_async(tensor))
reveal_type(hvd.grouped_allreduce([tensor], compression=hvd.Compression.fp16))
reveal_type(hvd.alltoall(tensor))
reveal_type(hvd.alltoall(tensor, splits=[1, 1]))
reveal_type(hvd.rank())
hvd.allreduce([1.0])
hvd.allreduce(tensor, nam="x")
hvd.allreduce(tensor, compression=int)
"""
TENSOR = "torch._tensor.Tensor"
TYPES = [TENSOR, TENSOR, "int", f"list[{TENSOR}]", TENSOR, f"tuple[{TENSOR}, {TENSOR}]", "int"]


def test_types(tmp_path: Path) -> None:
    program = tmp_path / "user.py"
    program.write_text(PROGRAM)
    # What mypy knows of torch takes a minute to find out, so it is kept.
    cache = ROOT / "build" / "mypy-of-users"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull),
            "--cache-dir",
            cache,
            program,
        ],
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert re.findall(r'note: Revealed type is "(.*)"', done.stdout) == TYPES, done.stdout + done.stderr
    assert re.findall(r"^user.py:(\d+): error:", done.stdout, re.M) == ["12", "13", "14"], done.stdout
