"""What else of a Trainer concerns all ranks: data, metrics, files, the end."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torchmetrics
from lightning_setup import BATCH, ROWS, L, Module, X, Y, loader, trainer
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd
from horovod.lightning import gather_all, ranks_share_metrics


class Counting(Module):
    """Keeps the numbers of the rows that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.rows += batch[2].tolist()
        return super().training_step(batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return batch[2]


def numbered(shuffle: bool = False) -> Any:
    return DataLoader(TensorDataset(X, Y, torch.arange(ROWS)), batch_size=BATCH, shuffle=shuffle)


def check_sampler() -> None:
    """Each row on one rank, in another order in each epoch."""
    module = Counting()
    one = trainer(max_epochs=2)
    one.fit(module, numbered(shuffle=True))
    share = ROWS // hvd.size()
    epochs = [module.rows[:share], module.rows[share:]]
    for rows in epochs:
        assert sorted(row for each in hvd.allgather_object(rows) for row in each) == list(range(ROWS))
    assert epochs[0] != epochs[1]
    assert one.world_size == hvd.size() and one.global_rank == hvd.rank()
    assert one.is_global_zero == (hvd.rank() == 0)
    predicted = torch.cat(trainer().predict(module, numbered())).tolist()
    assert predicted == list(range(hvd.rank(), ROWS, hvd.size()))


class Measured(Module):
    """Logs what depends on the rank."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracy = torchmetrics.classification.BinaryAccuracy()
        self.values = torchmetrics.CatMetric()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        own = float(hvd.rank() + batch_idx)
        self.log("mean", own, on_step=False, on_epoch=True, sync_dist=True)
        self.log("sum", own, on_step=False, on_epoch=True, sync_dist=True, reduce_fx="sum")
        self.log("max", own, on_step=False, on_epoch=True, sync_dist=True, reduce_fx="max")
        self.log("own", own, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        right = torch.ones(BATCH, dtype=torch.int64)
        self.accuracy(right * int(hvd.rank() == 0), right)  # rank 0 is right, the others are not
        self.log("accuracy", self.accuracy)
        for _ in range(hvd.rank()):  # so that rank 0 has none
            self.values.update(batch[0][:, 0])

    def on_validation_epoch_end(self) -> None:
        self.all = self.values.compute()
        self.values.reset()


def check_metrics() -> None:
    module, one = Measured(), trainer(max_epochs=1)
    one.fit(module, loader(), loader())
    ranks, steps = hvd.size(), ROWS // BATCH // hvd.size()
    found = {name: float(value) for name, value in one.callback_metrics.items()}
    assert found["mean"] == (ranks - 1) / 2 + (steps - 1) / 2
    assert found["sum"] == sum(rank + step for rank in range(ranks) for step in range(steps))
    assert found["max"] == ranks - 1 + steps - 1
    assert found["own"] == hvd.rank() + (steps - 1) / 2
    assert abs(found["accuracy"] - 1 / ranks) < 1e-6
    expected = [X[rank::ranks, 0] for rank in range(ranks) for _ in range(rank)]
    assert torch.equal(module.all.sort().values, torch.cat(expected).sort().values)


def check_metrics_elsewhere() -> None:
    own = torchmetrics.SumMetric()
    own.update(1.0)
    assert float(own.compute()) == 1.0  # torchmetrics does not know of the ranks
    ranks_share_metrics(own)
    own.update(1.0)
    assert float(own.compute()) == 2.0 * hvd.size()
    given = torchmetrics.SumMetric(dist_sync_fn=gather_all, distributed_available_fn=lambda: True)
    given.update(1.0)
    assert float(given.compute()) == hvd.size()


def check_gather_all() -> None:
    rank = hvd.rank()
    several = gather_all(torch.full((rank, 2 + rank), rank))
    assert [tuple(each.shape) for each in several] == [(r, 2 + r) for r in range(hvd.size())]
    assert all(bool((each == r).all()) for r, each in enumerate(several))
    assert [float(each) for each in gather_all(torch.tensor(float(rank)))] == list(range(hvd.size()))


class Gathering(Module):
    """Uses the collectives that a LightningModule has."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        rank, ranks = self.global_rank, self.trainer.world_size
        gathered = self.all_gather({"a": torch.full((2, 3), float(rank)), "b": torch.tensor(rank)})
        assert gathered["a"].shape == (ranks, 2, 3) and gathered["b"].tolist() == list(range(ranks))
        assert gathered["a"][:, 0, 0].tolist() == list(range(ranks))
        source = torch.ones(2, requires_grad=True)
        assert not self.all_gather(source).requires_grad
        # As with torch.distributed: the sum over the ranks of the gradients for this rank's part.
        (self.all_gather(source, sync_grads=True) * (rank + 1.0)).sum().backward()
        assert source.grad is not None and source.grad.tolist() == [sum(range(1, ranks + 1))] * 2
        strategy = self.trainer.strategy
        assert strategy.broadcast(f"of {rank}", src=1) == "of 1"
        assert strategy.reduce_boolean_decision(rank == 0, all=False)
        assert not strategy.reduce_boolean_decision(rank == 0, all=True)
        assert strategy.reduce("no tensor") == "no tensor"
        product = strategy.reduce(torch.tensor(2.0), reduce_op=torch.distributed.ReduceOp.PRODUCT)
        assert float(product) == 2.0**ranks
        return super().training_step(batch, batch_idx)


def check_collectives() -> None:
    trainer(max_epochs=1).fit(Gathering(), loader())


class WorseOnRank1(Module):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        better = -float(self.current_epoch)
        self.log("loss", better if hvd.rank() == 0 or self.current_epoch < 2 else 5.0)


def check_early_stopping() -> None:
    """If one rank wants to stop, all do."""
    module = WorseOnRank1()
    stopping = L.callbacks.EarlyStopping("loss", patience=0)
    one = trainer(max_epochs=9, callbacks=[stopping])
    one.fit(module, loader(), loader())
    assert hvd.allgather_object(one.current_epoch) == [3] * hvd.size()


def check_checkpoints() -> None:
    """Rank 0 writes them, also if the others have been told another directory."""
    with tempfile.TemporaryDirectory() as directory:
        saving = L.callbacks.ModelCheckpoint(directory, filename="{epoch}", save_top_k=-1, monitor="loss")
        one = trainer(max_epochs=2, callbacks=[saving], enable_checkpointing=True)
        one.fit(WorseOnRank1(), loader(), loader())
        written = sorted(path.name for path in Path(directory).iterdir())
        assert written == (["epoch=0.ckpt", "epoch=1.ckpt"] if hvd.rank() == 0 else []), written
        assert len(set(hvd.allgather_object(saving.best_model_path))) == 1
        hvd.barrier()


def check_evaluation() -> None:
    class Tested(Module):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("weight", self.net[0].weight.sum(), sync_dist=True)

    module = Tested()
    first = Tested().start[0].sum()
    (result,) = trainer().test(module, loader(), verbose=False)
    assert abs(result["weight"] - float(first)) < 1e-5  # all ranks have rank 0's weights


def check_devices() -> None:
    one = trainer()
    assert one.strategy.root_device == torch.device("cpu")
    tensor: Tensor = one.strategy.reduce(torch.tensor(3))
    assert tensor.tolist() == 3
