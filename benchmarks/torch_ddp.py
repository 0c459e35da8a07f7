"""Training steps with hvd.DistributedOptimizer side by side with torch's DistributedDataParallel on gloo.

    python benchmarks/torch_ddp.py              # starts two processes, prints a table
    python benchmarks/torch_ddp.py --write      # and puts it into docs/benchmarks.md

Both train the same models on the same data in the same processes, in turns, each round beginning with the
other one. A round's time is that of the slowest rank. The weights must agree in the end.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from flags import circumstances, in_turns_parser
from section import Section
from torch import nn

import horovod.torch as hvd

SECTION = Section(
    "torch-ddp",
    """
## Training with PyTorch, side by side with DistributedDataParallel

`python benchmarks/torch_ddp.py --write`: the same models on the same data in the same processes, in turns,
one thread per rank, DDP on gloo with its defaults. A round's time is that of the slowest rank; medians over
the rounds.
""",
)
_STORE = "TORCH_DDP_STORE"


@dataclass(frozen=True)
class Work:
    """A model with its input, and how much faster than DDP we want to be."""

    title: str
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    target: float


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def mlp() -> nn.Module:
    width = 2048
    return nn.Sequential(
        nn.Linear(784, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


WORKS = (
    Work("CNN", cnn, (16, 1, 28, 28), 10, target=1.0),
    Work("MLP", mlp, (8, 784), 10, target=1.5),
)


class Trainer:
    """A model, its optimizer and one batch."""

    def __init__(self, work: Work, ddp: bool) -> None:
        torch.manual_seed(0)
        self.plain = model = work.model()
        self.model: nn.Module = model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        self.optimizer: torch.optim.Optimizer = optimizer
        if ddp:
            self.model = nn.parallel.DistributedDataParallel(model)
        else:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        torch.manual_seed(1 + hvd.rank())
        self.inputs = torch.randn(work.shape)
        self.labels = torch.randint(0, work.classes, work.shape[:1])

    def steps(self, count: int) -> float:
        """Seconds that `count` steps take on the slowest rank."""
        hvd.barrier()
        started = time.perf_counter()
        for _ in range(count):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.inputs), self.labels).backward()
            self.optimizer.step()
        return float(hvd.allreduce(torch.tensor(time.perf_counter() - started), op=hvd.Max))


@dataclass(frozen=True)
class Line:
    """Figures of one model."""

    work: Work
    parameters: int
    tensors: int
    steps: int
    ours: float  # steps per second
    ddp: float

    @property
    def ratio(self) -> float:
        return self.ours / self.ddp


def measure(work: Work, rounds: int, seconds: float) -> Line:
    """Trains in turns. AssertionError if the two differ in what they have learned."""
    contenders = [Trainer(work, ddp=False), Trainer(work, ddp=True)]
    warmup = max(trainer.steps(5) for trainer in contenders) / 5
    count = max(2, int(seconds / warmup))
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which].append(contenders[which].steps(count))
    parameters = list(contenders[0].plain.parameters())
    for mine, other in zip(parameters, contenders[1].plain.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-3), "the two have learned different weights"
    ours, ddp = (count / statistics.median(each) for each in times)
    return Line(
        work, sum(parameter.numel() for parameter in parameters), len(parameters), rounds * count, ours, ddp
    )


def table(lines: list[Line]) -> str:
    rows = [
        "| model | parameters | tensors | steps | ours, steps/s | DDP, steps/s | ratio | target | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        verdict = "pass" if line.ratio >= line.work.target else "MISS"
        rows.append(
            f"| {line.work.title} | {line.parameters:,} | {line.tensors} | {line.steps} | {line.ours:.1f} "
            f"| {line.ddp:.1f} | {line.ratio:.2f} | ≥ {line.work.target:g} | {verdict} |"
        )
    return "\n".join(rows)


def rank_main(options: argparse.Namespace) -> None:
    """What every rank does."""
    torch.set_num_threads(1)
    hvd.init()
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{os.environ[_STORE]}",
        rank=hvd.rank(),
        world_size=hvd.size(),
        timeout=datetime.timedelta(seconds=60),
    )
    load = circumstances(f"{hvd.size()} ranks on {os.cpu_count()} cores, torch {torch.__version__}")
    lines = [measure(work, options.rounds, options.seconds) for work in WORKS]
    if hvd.rank() == 0:
        text = f"{load}\n\n{table(lines)}"
        print(text, flush=True)
        if options.write:
            SECTION.write(text)
    torch.distributed.destroy_process_group()
    hvd.shutdown()


def main() -> int:
    """Entry point; starts itself again under horovodrun."""
    description = "Compares hvd.DistributedOptimizer with torch's DistributedDataParallel on gloo."
    options = in_turns_parser(description, rounds=11, seconds=0.5).parse_args()
    if _STORE in os.environ:
        rank_main(options)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, _STORE: f"{directory}/store", "GLOO_SOCKET_IFNAME": "lo"}
        environment.setdefault("OMP_NUM_THREADS", "1")
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(options.np)]
        command += [sys.executable, __file__, *sys.argv[1:]]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
