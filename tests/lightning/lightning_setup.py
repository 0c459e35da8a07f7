"""What the checks of horovod.lightning share: data, a module, a Trainer, and training without Lightning."""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

PACKAGE = os.environ.get("HVD_TEST_LIGHTNING", "lightning.pytorch")
L: Any = importlib.import_module(PACKAGE)

from horovod.lightning import HorovodStrategy  # noqa: E402  # after Lightning, as users do

hvd.init()
torch.set_num_threads(1)
logging.getLogger(PACKAGE).setLevel(logging.ERROR)
# Advice of Lightning's, also that of machines which have Slurm's srun.
ADVICE = ".*(num_workers|log_every_n_steps|treespec|weights_only|srun).*"
warnings.filterwarnings("ignore", message=ADVICE)

ROWS, BATCH = 24, 4  # rows in all, rows per batch and rank
_generator = torch.Generator().manual_seed(7)
X = torch.randn(ROWS, 5, generator=_generator)
Y = torch.randn(ROWS, 1, generator=_generator)


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))


def loader() -> Any:
    """All ranks' batches together are the rows in order. By itself Lightning shuffles what it distributes."""
    rows = TensorDataset(X, Y)
    return DataLoader(rows, BATCH, sampler=DistributedSampler(rows, hvd.size(), hvd.rank(), shuffle=False))


class Module(L.LightningModule):
    """Starts with other weights on each rank."""

    def __init__(self, make_optimizer: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.net = network(100 + hvd.rank())
        self.start = [parameter.detach().clone() for parameter in network(100).parameters()]
        self._make_optimizer = make_optimizer or sgd

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return self._make_optimizer(self.net.parameters())

    @property
    def weights(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.net.parameters()])


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def trainer(strategy: Any = None, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return L.Trainer(strategy=strategy or HorovodStrategy(), **{**settings, **options})


def trained(module: Any = None, data: Any = None, strategy: Any = None, **options: Any) -> Any:
    """The module after fit(). All ranks must have the same weights then."""
    module = module or Module()
    trainer(strategy, **options).fit(module, data or loader())
    assert_same(module.weights)
    return module


def assert_same(weights: Tensor) -> None:
    everyone = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(each, everyone[0]) for each in everyone), everyone


def alone(
    make_optimizer: Callable[[Any], Any] = sgd,
    epochs: int = 2,
    passes: Callable[[int], int] = lambda epoch: 1,
    clip: float | None = None,
) -> Tensor:
    """The weights that one process gets with the whole batches, without Lightning and Horovod."""
    net = network(100)
    optimizer = make_optimizer(net.parameters())
    rows = BATCH * hvd.size()
    starts = range(0, ROWS, rows)
    for epoch in range(epochs):
        for number, start in enumerate(starts):
            if number % passes(epoch) == 0:
                optimizer.zero_grad()
            batch = slice(start, start + rows)
            (nn.functional.mse_loss(net(X[batch]), Y[batch]) / passes(epoch)).backward()
            if (number + 1) % passes(epoch) == 0 or number + 1 == len(starts):
                if clip is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
