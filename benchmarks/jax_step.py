"""Collectives and training steps with JAX: 161 gradients, four bytes, and a small network.

    python benchmarks/jax_step.py              # starts two processes, prints the table
    python benchmarks/jax_step.py --write      # and puts it into docs/benchmarks.md

Contenders run in the same two processes, in turns. What is not distributed runs in both at the same time, so
that it has the same share of the machine. Run by itself it starts again under horovodrun.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flags import circumstances, new_parser
from others import Others
from section import Section

from horovod.bench.options import positive

SECTION = Section(
    "jax-step",
    """
## JAX

`python benchmarks/jax_step.py --write`: contenders in turns in the same two processes, which begin
each round together; times are means over the ranks, figures medians over the rounds, each of which
has 100 steps of training. *numpy* is the same operation through `horovod.numpy`; *plain* is the
same training without Horovod, in both processes at the same time but each for itself. *Threads*
are those that XLA computes with in each process: its *share* of the processors, as `horovodrun`
has it (one, here), or *all*, a thread for each processor (`--no-share-threads`).
""",
)

_THREADS, _RESULTS = "JAX_STEP_THREADS", "JAX_STEP_RESULTS"
SHARE, ALL = "share", "all"


def timed(step: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def in_turns(rounds: int, repeats: int, *steps: Callable[[], Any]) -> list[float]:
    """The median time of each."""
    return [statistics.median(each) for each in all_times(rounds, repeats, *steps)]


def all_times(rounds: int, repeats: int, *steps: Callable[[], Any]) -> list[list[float]]:
    """Of each in each round: means over the ranks, as those that are not in step do not end together."""
    import numpy as np

    import horovod.numpy as hvd

    times: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    for number in range(rounds):
        for place in range(len(steps)):
            which = (place + number) % len(steps)
            hvd.barrier()
            own = timed(steps[which], repeats)
            times[which].append(float(hvd.allreduce(np.array(own), op=hvd.Average)))
    return times


def gradients(rounds: int) -> tuple[float, float]:
    """ResNet-50's 161, as they come: numpy's and JAX's time. Those of JAX are computed in the program."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import horovod.jax as hvd
    import horovod.numpy as hvd_np
    from horovod.bench.resnet50 import parameters

    arrays = [np.ones(shape, np.float32) for _, shape in parameters()]
    leaves = [jnp.asarray(array) for array in arrays]
    step = jax.jit(lambda leaves: hvd.allreduce(leaves, name="gradients"), donate_argnums=0)

    def with_numpy() -> None:
        hvd_np.grouped_allreduce_(arrays, name="arrays")

    def with_jax() -> None:
        leaves[:] = jax.block_until_ready(step(list(leaves)))

    return tuple(in_turns(rounds, 2, with_numpy, with_jax))  # type: ignore[return-value]


def four_bytes(rounds: int) -> tuple[float, float, float]:
    """numpy's time, that of a program, and that of a value."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import horovod.jax as hvd
    import horovod.numpy as hvd_np

    array, leaf = np.ones(1, np.float32), jnp.ones(1)
    step = jax.jit(lambda leaf: hvd.allreduce(leaf, name="four"))
    return tuple(  # type: ignore[return-value]
        in_turns(
            rounds,
            100,
            lambda: hvd_np.allreduce(array, name="four bytes"),
            lambda: step(leaf).block_until_ready(),
            lambda: hvd.allreduce(leaf, name="value").block_until_ready(),
        )
    )


def training(rounds: int) -> tuple[float, float, float]:
    """A network of 784-512-512-10: the time of a step without and with Horovod, and their quotient.

    A round has so many steps that its end, where one rank may have the machine for itself, matters little.
    """
    import jax
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    sizes = (784, 512, 512, 10)
    keys = jax.random.split(jax.random.key(0), len(sizes))
    start = [
        jax.random.normal(key, (inputs, outputs)) * 0.05
        for key, inputs, outputs in zip(keys, sizes, sizes[1:], strict=False)
    ]
    images = jax.random.normal(keys[-1], (256, 784))
    labels = jnp.arange(256) % 10

    def loss(weights: Any) -> Any:
        hidden = images
        for weight in weights[:-1]:
            hidden = jax.nn.relu(hidden @ weight)
        return optax.softmax_cross_entropy_with_integer_labels(hidden @ weights[-1], labels).mean()

    def trainer(optimizer: Any) -> Callable[[], None]:
        weights = [jnp.array(weight) for weight in start]
        state = optimizer.init(weights)

        @jax.jit
        def step(weights: Any, state: Any) -> Any:
            updates, state = optimizer.update(jax.grad(loss)(weights), state, weights)
            return optax.apply_updates(weights, updates), state

        def run() -> None:
            nonlocal weights, state
            weights, state = jax.block_until_ready(step(weights, state))

        return run

    plain, ours = trainer(optax.adam(1e-3)), trainer(hvd.DistributedOptimizer(optax.adam(1e-3)))
    times = all_times(rounds, 100, plain, ours)
    quotient = statistics.median(one / other for one, other in zip(*times, strict=True))
    return statistics.median(times[0]), statistics.median(times[1]), quotient


def measure(rounds: int, threads: str) -> list[str]:
    """Rows of the table."""
    rows = []
    if threads == SHARE:
        numpy_time, jax_time = gradients(rounds)
        rows.append(
            f"| 161 gradients of ResNet-50 (102 MB) in a program | {threads} | {1e3 * numpy_time:.1f} ms | "
            f"{1e3 * jax_time:.1f} ms | {jax_time / numpy_time:.0%} of numpy's | ≤ 115 % |"
        )
        small, program, value = four_bytes(rounds)
        rows.append(
            f"| 4 bytes in a program | {threads} | {1e6 * small:.0f} µs | {1e6 * program:.0f} µs | "
            f"{program / small:.0%} of numpy's | ≤ 300 % |"
        )
        rows.append(
            f"| 4 bytes on a value | {threads} | {1e6 * small:.0f} µs | {1e6 * value:.0f} µs | "
            f"{value / small:.0%} of it | |"
        )
    plain, ours, quotient = training(rounds)
    rows.append(
        f"| MLP of 0.7 M weights, Adam, batch 256 | {threads} | plain {1e3 * plain:.2f} ms | "
        f"{1e3 * ours:.2f} ms | {quotient:.0%} of plain | ≥ 90 % |"
    )
    return rows


def run_job(threads: str) -> list[str]:
    """Starts this program again under horovodrun. CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        environment = {**os.environ, _THREADS: threads, _RESULTS: str(results)}
        environment["HOROVOD_SHARE_THREADS"] = str(int(threads == SHARE))
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, *sys.argv]
        subprocess.run(command, env=environment, check=True)
        return results.read_text(encoding="utf-8").splitlines()


def rank_main(rounds: int) -> None:
    """What every rank does."""
    import horovod.jax as hvd

    hvd.init()
    rows = measure(rounds, os.environ[_THREADS])
    if hvd.rank() == 0:
        Path(os.environ[_RESULTS]).write_text("\n".join(rows), encoding="utf-8")
    hvd.shutdown()


def main() -> None:
    """Entry point."""
    parser = new_parser("JAX with Horovod on two processes")
    parser.add_argument("--rounds", type=positive, default=15, help="how often each is measured")
    options = parser.parse_args()
    if _RESULTS in os.environ:
        return rank_main(options.rounds)
    others = Others()
    rows = [*run_job(SHARE), *run_job(ALL)]
    about = circumstances(f"2 ranks on {os.cpu_count()} cores, JAX {version('jax')}")
    heading = ["| | threads | compared with | JAX | | target |", "|---|---|---|---|---|---|"]
    share = f"Other programs took {others.share():.0%} of the processors' time."
    text = "\n".join([about, share, "", *heading, *rows])
    print(text, flush=True)
    if options.write:
        SECTION.write(text)


if __name__ == "__main__":
    main()
