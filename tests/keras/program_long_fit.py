"""One rank of a training whose ranks must agree on every bit after every epoch.

Combinations of what changes how and when gradients are reduced are drawn by number; the ranks differ in their
data and the size of the last batch. `horovodrun -np 2 python program_long_fit.py --numbers 17` repeats one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np

import horovod.keras as hvd
import horovod.numpy as hvd_np

BATCH, WORDS, LENGTH = 8, 50, 6
STEPS_PER_EPOCH = 12


def combination(number: int, backend: str) -> dict[str, Any]:
    """The same on all ranks."""
    draw = random.Random(number)
    jit = draw.random() < 0.5
    return {
        "policy": draw.choice(["float32", "mixed_float16", "mixed_bfloat16"]),
        "optimizer": draw.choice(["SGD", "Adam", "RMSprop"]),
        "passes": draw.choice([1, 1, 2, 3]),
        "keras_accumulation": draw.choice([None, None, 2]),
        "steps_per_execution": draw.choice([1, 4]) if backend == "tensorflow" else 1,  # Keras's own limit
        "jit": jit,
        "eagerly": not jit and draw.random() < 0.3,
        "op": draw.choice([hvd.Average, hvd.Sum]),
        "groups": draw.choice([None, 2]),
        "compression": draw.choice(["none", "fp16"]),
    }


def model_of(chosen: dict[str, Any]) -> Any:
    """Its first weights differ from rank to rank: the callback has to bring them together."""
    keras.utils.set_random_seed(100 + hvd.rank())
    keras.config.set_dtype_policy(chosen["policy"])
    try:
        return keras.Sequential(
            [
                keras.Input((LENGTH,), dtype="int32"),
                keras.layers.Embedding(WORDS, 8),
                keras.layers.Flatten(),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
    finally:
        keras.config.set_dtype_policy("float32")


class SameBits(keras.callbacks.Callback):  # type: ignore[misc]
    """Compares weights and the optimizer's state after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        values = [*self.model.trainable_variables, *self.model.optimizer.variables]
        arrays = [np.asarray(keras.ops.convert_to_numpy(value)) for value in values]
        own = [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]
        for rank, theirs in enumerate(hvd_np.allgather_object(own)):
            differ = [values[i].path for i in range(len(own)) if own[i] != theirs[i]]
            assert not differ, f"epoch {epoch}: rank {hvd.rank()} and rank {rank} differ in {differ}"
        weights = arrays[: len(self.model.trainable_variables)]
        assert all(np.isfinite(array).all() for array in weights), f"epoch {epoch}: not finite"
        self.seen.append("".join(own[: len(weights)]))


def train(chosen: dict[str, Any], steps: int, seed: int) -> None:
    epochs = -(-steps // STEPS_PER_EPOCH)
    generator = np.random.default_rng([seed, hvd.rank()])
    rows = BATCH * (STEPS_PER_EPOCH - 1) + 1 + (3 * hvd.rank() + seed) % BATCH
    x = generator.integers(0, WORDS, (rows, LENGTH)).astype("int32")
    y = (x.sum(axis=1, keepdims=True) / (WORDS * LENGTH)).astype("float32")
    model = model_of(chosen)
    kind = getattr(keras.optimizers, chosen["optimizer"])
    optimizer = hvd.DistributedOptimizer(
        kind(0.002, gradient_accumulation_steps=chosen["keras_accumulation"]),
        op=chosen["op"],
        backward_passes_per_step=chosen["passes"],
        average_aggregated_gradients=True,
        groups=chosen["groups"],
        compression=getattr(hvd.Compression, chosen["compression"]),
        sparse_as_dense=chosen["passes"] > 1,
    )
    model.compile(
        optimizer,
        "mse",
        jit_compile=chosen["jit"],
        run_eagerly=chosen["eagerly"],
        steps_per_execution=chosen["steps_per_execution"],
    )
    same = SameBits()
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), same]
    model.fit(x, y, batch_size=BATCH, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=True)
    assert len(same.seen) == epochs
    assert same.seen[0] != same.seen[-1], "nothing was learnt"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--numbers", type=int, nargs="+", default=range(8), help="which combinations")
    args = parser.parse_args()
    hvd.init()
    backend = keras.backend.backend()
    for number in args.numbers:
        chosen = combination(number, backend)
        if hvd.rank() == 0:
            print(f"{backend}, {hvd.size()} ranks, number {number}: {chosen}", flush=True)
        begin = time.monotonic()
        train(chosen, args.steps, number)
        if hvd.rank() == 0:
            seconds = time.monotonic() - begin
            print(f"number {number}: {args.steps} steps in {seconds:.1f} s, same bits", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
