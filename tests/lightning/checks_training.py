"""Two ranks on half batches train as one process on whole ones does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from lightning_setup import (
    ADVICE,
    BATCH,
    ROWS,
    HorovodStrategy,
    L,
    Module,
    X,
    alone,
    assert_close,
    loader,
    sgd,
    trained,
    trainer,
)
from torch import nn
from util_expect import raises

import horovod.torch as hvd


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.05)


def check_whole_batches() -> None:
    assert_close(trained().weights, alone())
    assert_close(trained(Module(adam)).weights, alone(adam))


def check_name_of_the_strategy() -> None:
    assert_close(trained(strategy="horovod").weights, alone())


def check_options() -> None:
    strategy = HorovodStrategy(compression=hvd.Compression.fp16, gradient_predivide_factor=2.0, groups=2)
    torch.testing.assert_close(trained(strategy=strategy).weights, alone(), rtol=1e-2, atol=1e-2)


def check_accumulation() -> None:
    """The last of an epoch's windows has one pass of two, as three batches are no multiple."""
    assert ROWS // (BATCH * hvd.size()) % 2 == 1
    assert_close(trained(accumulate_grad_batches=2).weights, alone(passes=lambda epoch: 2))


def check_accumulation_that_changes() -> None:
    callback = L.callbacks.GradientAccumulationScheduler({0: 1, 1: 2})
    assert_close(trained(callbacks=[callback]).weights, alone(passes=lambda epoch: 1 + epoch))


class Watching(Module):
    """Keeps the first gradient that each hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, torch.Tensor] = {}

    def _keep(self, hook: str) -> None:
        gradient = self.net[0].weight.grad
        assert gradient is not None
        self.seen.setdefault(hook, gradient.clone())

    def on_after_backward(self) -> None:
        self._keep("after backward")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self._keep("before step")

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        self._keep("clipping")
        super().configure_gradient_clipping(*args, **kwargs)


def check_clipping() -> None:
    """Sees the combined gradients: the norm of the ranks' own is another."""
    found = trained(Watching(), gradient_clip_val=0.1)
    assert_close(found.weights, alone(clip=0.1))
    assert len(found.seen) == 3
    for hook, gradient in found.seen.items():
        everyone = hvd.allgather(gradient.unsqueeze(0))
        assert torch.equal(everyone[0], everyone[-1]), hook


def check_mixed_precision() -> None:
    torch.testing.assert_close(trained(precision="bf16-mixed").weights, alone(), rtol=0.2, atol=0.05)


def check_lbfgs() -> None:
    def lbfgs(parameters: Any) -> Any:
        return torch.optim.LBFGS(parameters, lr=0.5, max_iter=3, line_search_fn="strong_wolfe")

    trained(Module(lbfgs), max_epochs=1)


class TwoOptimizers(Module):
    """Manual optimization, in which a backward pass also reaches the other optimizer's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            self.clip_gradients(optimizer, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [sgd(self.net[0].parameters()), sgd(self.net[2].parameters())]


def check_manual_optimization() -> None:
    trained(TwoOptimizers())


class Thawing(Module):
    """A layer that comes to the optimizer later, as with Lightning's callbacks for fine-tuning."""

    def configure_optimizers(self) -> Any:
        self.net[0].requires_grad_(False)
        return sgd(self.net[2].parameters())

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 1:
            self.net[0].requires_grad_(True)
            self.optimizers().add_param_group({"params": list(self.net[0].parameters())})


def check_parameters_that_come_later() -> None:
    before = Module().start
    after = trained(Thawing())
    assert not torch.allclose(after.net[0].weight, before[0])


class Scheduled(Module):
    def configure_optimizers(self) -> Any:
        optimizer = sgd(self.net.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)]


def check_resumed() -> None:
    """From a file that rank 0 wrote: schedule, momentum and weights go on where they were."""
    directory = Path(hvd.broadcast_object(_directory() if hvd.rank() == 0 else None))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message=ADVICE)
        whole = trained(Scheduled(), max_epochs=4)
        first = trainer(max_epochs=2)
        first.fit(Scheduled(), loader())
        own = directory / f"by rank {hvd.rank()}.ckpt"
        first.save_checkpoint(own)
        assert [path.name for path in directory.iterdir()] == ["by rank 0.ckpt"]
        later = Scheduled()
        trainer(max_epochs=4).fit(later, loader(), ckpt_path=directory / "by rank 0.ckpt")
    assert_close(later.weights, whole.weights)


def _directory() -> str:
    import tempfile

    return tempfile.mkdtemp()


def check_the_parameters_are_plain_afterwards() -> None:
    module = trained()
    if hvd.rank() == 0:  # alone
        for _ in range(3):
            module.loss((X, X[:, :1])).backward()


def check_batch_norm_of_torch_distributed_is_refused() -> None:
    with raises(ValueError, "horovod.torch.SyncBatchNorm"):
        trainer(sync_batchnorm=True).fit(Module(), loader())


def check_the_start_is_that_of_rank_0() -> None:
    class Buffered(Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("extra", torch.full((2,), float(hvd.rank())), persistent=False)
            self.norm = nn.BatchNorm1d(3)
            self.norm.running_mean.fill_(hvd.rank())

    module = trained(Buffered(), max_epochs=1)
    assert module.extra.tolist() == [0, 0] and module.norm.running_mean.tolist() == [0, 0, 0]


def check_steps_are_counted() -> None:
    for passes in (1, 2):
        before = hvd.metrics()["steps_total"]
        trained(accumulate_grad_batches=passes)
        batches = ROWS // (BATCH * hvd.size())
        steps = 2 * -(-batches // passes)
        # The optimizer of another training is known from its second step on.
        assert hvd.metrics()["steps_total"] - before in (steps - 1, steps)
