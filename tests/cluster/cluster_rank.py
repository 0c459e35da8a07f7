"""One rank of the cluster tests: `sum` once, `train`, `outage`, or `loop [numbers]` until it fails.

The last one then tells when and how; `outage` ends well after a step that took long, and ten more.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common.exceptions import HorovodInternalError


def check_sum() -> None:
    for count in (1, 1000, 300_000):
        data = np.random.default_rng(hvd.rank()).standard_normal(count).astype(np.float32)
        total = hvd.allreduce(data, op=hvd.Sum, name=f"sum.{count}")
        expected = np.zeros(count)
        for rank in range(hvd.size()):
            expected += np.random.default_rng(rank).standard_normal(count).astype(np.float32)
        np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)
        digest = hashlib.sha256(np.ascontiguousarray(total).tobytes()).hexdigest()
        everyone = hvd.allgather_object(digest)
        assert len(set(everyone)) == 1
    print(f"digest {digest}")
    size, rank = hvd.size(), hvd.rank()
    rows = np.arange(2 * size, dtype=np.float64) + rank
    np.testing.assert_allclose(
        hvd.reducescatter(rows, op=hvd.Sum), size * np.arange(2 * rank, 2 * rank + 2) + size * (size - 1) / 2
    )
    np.testing.assert_array_equal(hvd.broadcast(np.full(5, rank), size - 1), np.full(5, size - 1))
    np.testing.assert_array_equal(hvd.allgather(np.full(rank, rank)), np.repeat(range(size), range(size)))
    received = hvd.alltoall(np.arange(size) + 100 * rank)
    received = received[0] if isinstance(received, tuple) else received
    np.testing.assert_array_equal(received, 100 * np.arange(size) + rank)
    place = f"{hvd.rank()}/{hvd.size()} {hvd.local_rank()}/{hvd.local_size()}"
    place += f" {hvd.cross_rank()}/{hvd.cross_size()}"
    addresses = os.environ.get("HOROVOD_ADDRESSES")
    print(f"ok {place} on {socket.gethostname()} {os.environ['HOROVOD_HOSTNAME']} {addresses}")


def train() -> None:
    """A regression whose gradients are rounded in a way that depends on the order of their summation."""
    random = np.random.default_rng(hvd.rank())
    x, y = random.normal(size=(64, 20)).astype(np.float32), random.normal(size=64).astype(np.float32)
    half = x.astype(np.float16)
    w = hvd.broadcast(random.normal(size=20).astype(np.float32), 0, name="start")
    for step in range(100):
        gradient = x.T @ (x @ w - y) / len(x)
        w -= 0.05 * hvd.allreduce(gradient, name="gradient")
        w += 1e-4 * hvd.allreduce(half[step % 64], name="half")
    digest = hashlib.sha256(w.tobytes()).hexdigest()
    assert hvd.allgather_object(digest) == [digest] * hvd.size()
    if hvd.rank() == 0:
        print(f"digest {digest}")


def loop() -> None:
    step = 0
    data = np.ones(int(sys.argv[2]) if len(sys.argv) > 2 else 1000, np.float32)
    try:
        while True:
            hvd.allreduce(data, name="loop")
            if step == 0:
                print(f"running {os.getpid()} on {socket.gethostname()}", flush=True)
            step += 1
            time.sleep(0.01)
    except HorovodInternalError as error:
        print(f"raised {time.clock_gettime(time.CLOCK_MONOTONIC):.3f} {error}", flush=True)
        raise


def results_are_right() -> None:
    """Whatever happens to the network meanwhile: small and large, and of every rank for every rank."""
    rank, size = hvd.rank(), hvd.size()
    for count in (1000, 1_000_000):
        total = hvd.allreduce(np.full(count, rank + 1, np.int64), op=hvd.Sum, name=f"sum {count}")
        assert (total == size * (size + 1) // 2).all()
    exchanged, _ = hvd.alltoall(np.repeat(size * rank + np.arange(size), 1000), [1000] * size, name="all")
    assert (size * np.arange(size) + rank == exchanged.reshape(size, 1000).T).all()


def outage() -> None:
    slowest = 0.0
    deadline = time.monotonic() + 60
    while slowest < 3 and time.monotonic() < deadline:
        begin = time.monotonic()
        results_are_right()
        if slowest == 0:
            print("running", flush=True)
        slowest = hvd.allreduce(np.float64(time.monotonic() - begin), op=hvd.Max, name="slowest").item()
        time.sleep(0.01)
    for _ in range(10):
        results_are_right()
    print(f"went on after {slowest:.1f} s", flush=True)


def main() -> None:
    hvd.init()
    {"sum": check_sum, "train": train, "loop": loop, "outage": outage}[sys.argv[1]]()


if __name__ == "__main__":
    main()
