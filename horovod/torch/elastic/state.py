"""The state of a PyTorch training, and what knows how to save, restore and send each part of it."""

from __future__ import annotations

import io
from typing import Any

import torch

from horovod.common.basics import Adasum, rank
from horovod.common.collectives import check_adasum
from horovod.common.elastic import ObjectState, source_rank
from horovod.torch.elastic.copies import host_copy
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class StateHandler:
    """One object of a TorchState: derive from it for a type of your own, see set_handler_registry()."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copies what belongs to the object to host memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Writes back what was saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives the objects of all ranks the values of rank `source_rank()`. A collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """What is to be done when the ranks have changed; nothing by default."""

    def durable(self) -> Any:
        """What was saved, for a file: something that can be pickled."""
        raise NotImplementedError(f"{type(self).__name__} has no commits on disk: leave out --commit-dir")

    def load_durable(self, saved: Any) -> None:
        """Takes what durable() has given, as if it had been saved here; restore() follows."""
        raise NotImplementedError(f"{type(self).__name__} has no commits on disk: leave out --commit-dir")

    def set_value(self, value: Any) -> None:
        """Another object takes the place of this one, and is saved."""
        self.value = value
        self.save()


class _StatefulHandler(StateHandler):
    """Anything with state_dict() and load_state_dict(): learning-rate schedulers, torch.amp.GradScaler ..."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        """Copies its state_dict()."""
        self._saved = host_copy(self.value.state_dict(), into=self._saved)

    def restore(self) -> None:
        """Loads what was saved."""
        # A copy: some keep the tensors that they are given.
        self.value.load_state_dict(host_copy(self._saved))

    def durable(self) -> Any:
        """The copy of its state_dict()."""
        return self._saved

    def load_durable(self, saved: Any) -> None:
        """Takes it."""
        self._saved = saved

    def sync(self) -> None:
        """Broadcasts the state_dict()."""
        source = source_rank()
        received = broadcast_object(host_copy(self.value.state_dict()), source)
        if rank() != source:
            self.value.load_state_dict(received)


class ModelStateHandler(_StatefulHandler):
    """A model: parameters and buffers."""

    def restore(self) -> None:
        """Loads what was saved."""
        # Parameters and buffers are copied into, but modules may keep what they are given.
        self.value.load_state_dict(
            {
                name: host_copy(value) if _is_extra(name, value) else value
                for name, value in self._saved.items()
            }
        )

    def sync(self) -> None:
        """Broadcasts parameters and buffers in place."""
        tensors: dict[str, torch.Tensor] = {}
        others: dict[str, Any] = {}
        for name, value in self.value.state_dict().items():
            (others if _is_extra(name, value) else tensors)[name] = value
        source = source_rank()
        broadcast_parameters(tensors, root_rank=source)
        if others:
            received = broadcast_object(host_copy(others), source)
            if rank() != source:
                self.value.load_state_dict({**tensors, **received})


def _is_extra(name: str, value: Any) -> bool:
    """Whether a module adds it to its state: also a tensor is then made anew for each state_dict()."""
    return name.rpartition(".")[2] == "_extra_state" or not isinstance(value, torch.Tensor)


class OptimizerStateHandler(_StatefulHandler):
    """An optimizer, plain or distributed: state and options such as the learning rate."""

    def sync(self) -> None:
        """Broadcasts state and options."""
        if isinstance(self.value, torch.optim.LBFGS):
            super().sync()  # its state has tensors by the number of calls
        else:
            broadcast_optimizer_state(self.value, root_rank=source_rank())

    def reset(self) -> None:
        """Gives up gradients that were on their way in the old world.

        NotImplementedError with op=hvd.Adasum if the number of ranks is no power of two.
        """
        if getattr(self.value, "op", None) == Adasum:
            check_adasum(self.value.process_set)
        forget = getattr(getattr(self.value, "_horovod", None), "forget", None)
        if forget is not None:
            forget()


class SamplerStateHandler(_StatefulHandler):
    """An ElasticSampler: epoch and how far it is."""

    def reset(self) -> None:
        """Deals the rest of the epoch out to the ranks of now."""
        self.value.reset()


Registry = list[tuple[type[Any], type[StateHandler]]]

_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Types and the handlers of their objects; the first that fits is taken."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces it, for the states that are made from now on."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    stateful = all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))
    return _StatefulHandler(value) if stateful and not isinstance(value, type) else None


class TorchState(ObjectState):
    """The state of a PyTorch training: model, optimizer and, by any name, more of them, samplers,
    schedulers, numbers and other objects.

    What has a `state_dict()` keeps its identity: the attribute is the object that was given. All
    else is copied and pickled.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: _handler_of(value) for name, value in given.items()}
        self._handlers: dict[str, StateHandler] = {
            name: handler for name, handler in handlers.items() if handler is not None
        }
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        super().__init__(
            broadcast_object, rank, **{name: given[name] for name in given if name not in self._handlers}
        )

    def save(self) -> None:
        """Copies everything to host memory."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Takes back all changes since the last save."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def _durable(self) -> bytes:
        file = io.BytesIO()
        parts = {name: handler.durable() for name, handler in self._handlers.items()}
        torch.save({"objects": super()._durable(), "handlers": parts}, file)
        return file.getvalue()

    def _load_durable(self, content: bytes) -> None:
        # The user's own file, and not only tensors
        loaded = torch.load(io.BytesIO(content), weights_only=False, map_location="cpu")
        for name, handler in self._handlers.items():
            handler.load_durable(loaded["handlers"][name])
        super()._load_durable(loaded["objects"])

    def sync(self) -> None:
        """Gives all ranks the values of rank `source_rank()`, and saves them. A collective."""
        for handler in self._handlers.values():
            handler.sync()
        # Saves last, when all has arrived: a state is never kept in part.
        super().sync()

    def reset(self) -> None:
        """Adapts samplers and optimizers to the ranks of now."""
        for handler in self._handlers.values():
            handler.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        handlers: dict[str, StateHandler] = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        super().__setattr__(name, value)
