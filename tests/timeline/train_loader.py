"""A small training whose horovod.data loader is slow; nothing marks that but the loader itself."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

STEPS = 20
os.environ["KERAS_BACKEND"] = "torch"

import torch  # noqa: E402

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader  # noqa: E402


class Batches(BaseDataLoader):
    def __len__(self) -> int:
        return STEPS

    def _iterate(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(STEPS):
            time.sleep(0.1)
            yield torch.ones(8, 4), torch.ones(8, 1)


class Ahead(AsyncDataLoaderMixin, Batches):
    pass


def in_torch(loader: BaseDataLoader) -> None:
    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
    hvd.barrier()  # loaders that begin at different times would make one rank wait for the other's
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    assert hvd.metrics()["steps_total"] == STEPS
    hvd.shutdown()


def in_keras(loader: BaseDataLoader) -> None:
    import keras

    import horovod.keras as hvd
    from horovod.torch import barrier

    hvd.init()
    torch.set_num_threads(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    barrier()
    model.fit(iter(loader), steps_per_epoch=STEPS, callbacks=callbacks, verbose=0)
    assert hvd.metrics()["steps_total"] == STEPS
    hvd.shutdown()


in_keras(Ahead()) if sys.argv[1] == "keras" else in_torch(Ahead() if sys.argv[1] == "torch" else Batches())
