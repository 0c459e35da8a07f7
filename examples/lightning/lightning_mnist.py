"""Trains a small convolutional network on MNIST with Lightning, on any number of processes:

    horovodrun -np 2 python examples/lightning/lightning_mnist.py

What makes it distributed is marked with "Horovod:".
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd
from horovod.lightning import HorovodStrategy

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from digits_data import as_floats
from program import above_zero, add_checkpoint_dir, at_least_one, epochs_parser, told_errors
from training_report import Epoch, Report, begin


class Digits(pl.LightningModule):
    """A network, its loss and its metrics."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 5 * 5, 10),
        )
        # Horovod: metrics that belong to the module are computed over all ranks.
        self.accuracies = nn.ModuleDict(
            {
                name: torchmetrics.classification.MulticlassAccuracy(10, average="micro")
                for name in ("learn", "test")
            }
        )

    def _loss(self, batch: tuple[Tensor, Tensor], name: str) -> Tensor:
        images, labels = batch
        output = self.net(images)
        loss = nn.functional.cross_entropy(output, labels)
        self.accuracies[name](output, labels)
        self.log(f"{name}_accuracy", self.accuracies[name], on_step=False, on_epoch=True)
        # Horovod: a plain value is averaged over the ranks if sync_dist says so.
        self.log(f"{name}_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._loss(batch, "learn")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._loss(batch, "test")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # Horovod: all ranks together see a larger batch, which allows for larger steps.
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate * hvd.size())


class Telling(pl.Callback):
    """Reports each epoch."""

    def __init__(self, report: Report, images: int) -> None:
        self._report = report
        self._images = images
        self._started = 0.0
        self._seconds = 0.0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._started = time.perf_counter()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._seconds = time.perf_counter() - self._started

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        names = ("learn_loss", "learn_accuracy", "test_loss", "test_accuracy")
        self._report.epoch(Epoch(*(found[name] for name in names), self._images, self._seconds))


def run(options: argparse.Namespace) -> None:
    # Horovod: who am I, and who are the others.
    hvd.init()
    torch.set_num_threads(1)  # the processes share the cores
    warnings.filterwarnings("ignore", message=".*(num_workers|log_every_n_steps|treespec).*")
    report, digits = begin("MNIST with Lightning", options)
    loaders = [
        DataLoader(
            TensorDataset(
                torch.from_numpy(as_floats(images)).permute(0, 3, 1, 2), torch.from_numpy(labels).long()
            ),
            options.batch_size,
            shuffle=images is digits.x_train,
        )
        for images, labels in ((digits.x_train, digits.y_train), (digits.x_test, digits.y_test))
    ]
    pl.seed_everything(options.seed, verbose=False)
    model = Digits(options.lr)
    callbacks: list[pl.Callback] = [Telling(report, len(digits.x_train))]
    if options.checkpoint_dir:
        # Horovod: rank 0 writes, whatever the others have been told.
        callbacks.append(pl.callbacks.ModelCheckpoint(options.checkpoint_dir, filename="{epoch}"))
    trainer = pl.Trainer(
        # Horovod: the ranks that horovodrun has started, one device each. Lightning gives each its share of
        # the data, gradients are averaged, and rank 0's weights are those of all at the start.
        strategy=HorovodStrategy(),
        accelerator="cpu",
        devices=1,
        max_epochs=options.epochs,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=options.clip,
        callbacks=callbacks,
        enable_checkpointing=bool(options.checkpoint_dir),
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, *loaders)
    report.finish(parameter.detach().numpy() for parameter in model.parameters())
    hvd.shutdown()


def parse() -> argparse.Namespace:
    parser = epochs_parser("MNIST with Lightning", epochs=8, batch_size=32)
    parser.add_argument("--accumulate", type=at_least_one, default=1, help="batches per step")
    parser.add_argument("--clip", type=above_zero, help="largest norm of the gradients")
    add_checkpoint_dir(parser)
    return parser.parse_args()


if __name__ == "__main__":
    with told_errors():
        run(parse())
