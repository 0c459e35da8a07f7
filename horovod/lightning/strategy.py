"""The strategy class, which derives from that of the Lightning package in use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

import horovod.torch as hvd
from horovod.common.steps import end_step
from horovod.lightning.gradients import Gradients
from horovod.lightning.metrics import ranks_share_metrics

_FABRIC = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}
_REDUCTIONS = {
    "mean": hvd.Average,
    "avg": hvd.Average,
    "sum": hvd.Sum,
    "min": hvd.Min,
    "max": hvd.Max,
    "product": hvd.Product,
}


def _environment_class(base: Any) -> Any:
    class HorovodEnvironment(base):  # type: ignore[misc]
        """Who the ranks are. Nobody connects to an address: Horovod has done that."""

        creates_processes_externally = True
        main_address = "localhost"
        main_port = 0

        @staticmethod
        def detect() -> bool:
            return False  # only a strategy brings it

        def world_size(self) -> int:
            return hvd.size()

        def global_rank(self) -> int:
            return hvd.rank()

        def local_rank(self) -> int:
            return hvd.local_rank()

        def node_rank(self) -> int:
            return hvd.cross_rank()

        def set_world_size(self, size: int) -> None:
            pass

        def set_global_rank(self, rank: int) -> None:
            pass

    return HorovodEnvironment


def make_strategy_class(package: str) -> Any:
    """HorovodStrategy for the Trainer of `package`."""
    environments = importlib.import_module(f"{_FABRIC[package]}.plugins.environments")
    made = _strategy_class(
        importlib.import_module(f"{package}.strategies").ParallelStrategy,
        _environment_class(environments.ClusterEnvironment),
        importlib.import_module(f"{package}.utilities.rank_zero").rank_zero_only,
    )
    made.__module__, made.__qualname__ = "horovod.lightning", made.__name__
    return made


def _strategy_class(base: Any, environment_class: Any, rank_zero_only: Any) -> Any:
    class HorovodStrategy(base):  # type: ignore[misc]
        """Trains on the ranks that horovodrun (or mpirun, srun ...) has started, one device each.

        `compression`, `gradient_predivide_factor`, `groups` and `sparse_as_dense` are those of
        hvd.DistributedOptimizer. Gradients are averaged. The learning rate is used as it is: multiply it by
        hvd.size() in configure_optimizers() if the larger batch is to take larger steps.
        """

        strategy_name = "horovod"
        is_distributed = True  # or the Trainer lets every rank train on all data, without a word

        def __init__(
            self,
            accelerator: Any = None,
            parallel_devices: Any = None,
            checkpoint_io: Any = None,
            precision_plugin: Any = None,
            *,
            compression: Any = hvd.Compression.none,
            gradient_predivide_factor: float = 1.0,
            groups: Any = None,
            sparse_as_dense: bool = False,
        ) -> None:
            hvd.init()
            super().__init__(
                accelerator=accelerator,
                parallel_devices=parallel_devices,
                cluster_environment=environment_class(),
                checkpoint_io=checkpoint_io,
                precision_plugin=precision_plugin,
            )
            rank_zero_only.rank = hvd.rank()
            self._horovod_options = {
                "compression": compression,
                "gradient_predivide_factor": gradient_predivide_factor,
                "groups": groups,
                "sparse_as_dense": sparse_as_dense,
            }
            self._horovod_training: Gradients | None = None

        @property
        def _horovod_gradients(self) -> Gradients:
            assert self._horovod_training is not None, "only between setup() and teardown()"
            return self._horovod_training

        @property
        def root_device(self) -> torch.device:
            devices = self.parallel_devices or [torch.device("cpu")]
            if devices[0].type == "cuda":
                return torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
            device: torch.device = devices[0]
            return device

        @property
        def distributed_sampler_kwargs(self) -> dict[str, Any]:
            """What a DistributedSampler has to know: each rank draws its own share."""
            return {"num_replicas": hvd.size(), "rank": hvd.rank()}

        def model_to_device(self) -> None:
            self.model.to(self.root_device)

        def setup(self, trainer: Any) -> None:
            if self._layer_sync is not None:
                raise ValueError(
                    "Trainer(sync_batchnorm=True) needs torch.distributed: use horovod.torch.SyncBatchNorm "
                    "in place of the model's batch norms"
                )
            self.model_to_device()
            super().setup(trainer)
            module = self.lightning_module
            # Buffers, too: also those that are not part of the state.
            hvd.broadcast_parameters(chain(module.named_parameters(), module.named_buffers()), root_rank=0)
            for optimizer in self.optimizers:
                if not isinstance(optimizer, torch.optim.LBFGS):  # whose state is always empty here
                    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            ranks_share_metrics(module)
            self._horovod_training = Gradients(module, self._horovod_options)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            super().on_train_batch_start(batch, batch_idx)
            # Lightning divides the loss by the number of passes.
            passes = self.lightning_module.trainer.accumulate_grad_batches
            self._horovod_gradients.expect(self.optimizers, passes)

        def backward(self, closure_loss: Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> Tensor:
            # As Lightning's own, with the wait before the hooks that may look at the gradients.
            module, precision = self.lightning_module, self.precision_plugin
            self.pre_backward(closure_loss)
            loss = precision.pre_backward(closure_loss, module)
            precision.backward(loss, module, optimizer, *args, **kwargs)
            self._horovod_gradients.after_backward()
            detached: Tensor = precision.post_backward(loss, module)
            self.post_backward(detached)
            return detached

        def optimizer_step(
            self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any
        ) -> Any:
            def combined() -> Any:
                loss = closure()
                # Before the precision plugin clips.
                self._horovod_gradients.before_step(optimizer)
                if isinstance(optimizer, torch.optim.LBFGS) and isinstance(loss, Tensor):
                    # Which decides by the loss how often it calls: the same everywhere.
                    loss = hvd.allreduce(loss.detach())
                return loss

            result = super().optimizer_step(optimizer, combined, model, **kwargs)
            end_step(id(optimizer))
            return result

        def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
            """The ranks' tensors combined; what is no tensor is returned as it is."""
            if not isinstance(tensor, Tensor):
                return tensor
            # A word, or torch.distributed's ReduceOp.SUM
            word = "mean" if reduce_op is None else str(reduce_op).rpartition(".")[2].lower()
            if word not in _REDUCTIONS:
                raise ValueError(f"reduce_op must be one of {', '.join(_REDUCTIONS)}, got {reduce_op!r}")
            return hvd.allreduce(tensor, op=_REDUCTIONS[word])

        def barrier(self, name: str | None = None) -> None:
            hvd.barrier()

        def broadcast(self, obj: Any, src: int = 0) -> Any:
            return hvd.broadcast_object(obj, src)

        def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
            """The ranks' tensors under a new first dimension."""
            with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
                gathered: Tensor = hvd.allgather(tensor.unsqueeze(0).contiguous())
                if gathered.requires_grad:
                    # Horovod averages gradients of a gather, Lightning expects their sum.
                    register: Any = gathered.register_hook
                    register(lambda gradient: gradient * hvd.size())
            return gathered

        def teardown(self) -> None:
            self._horovod_training = None  # and with it the hooks of the parameters
            super().teardown()

    return HorovodStrategy
