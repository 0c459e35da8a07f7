"""Gives an optimizer a class that is its own with a hook in front.

The class has the name of the optimizer's own, derives from it, and reports it as `__class__`:
models are saved with the plain optimizer's name and configuration and can be loaded without
Horovod.
"""

from __future__ import annotations

import copy
import importlib
import types
from collections.abc import Callable
from typing import Any

from horovod._keras import flavours
from horovod._keras.distribution import Distribution
from horovod.common.distributed_options import DistributedOptions

_OPTIONS, _DISTRIBUTION = "_horovod_options", "_horovod_distribution"
_KINDS = {
    flavours.TENSORFLOW: "TensorFlowDistribution",
    flavours.TORCH: "TorchDistribution",
    flavours.JAX: "JaxDistribution",
}


def hook_into(optimizer: Any, hook: Any, options: DistributedOptions) -> None:
    """Puts `hook` in front; in the place of the one that is there, if there is one."""
    base = _plain_class(optimizer)
    members = {
        "__class__": property(lambda self: base),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        _OPTIONS: options,
        # By themselves copy and pickle go by `__class__`.
        "__copy__": lambda self: _copied(self, copy.copy),
        "__deepcopy__": lambda self, memo: _copied(self, lambda plain: copy.deepcopy(plain, memo)),
    }
    # type(base): the loss-scale optimizer of legacy Keras has a metaclass.
    distributed = type(base)(base.__name__, (hook, base), members)
    object.__dict__["__class__"].__set__(optimizer, distributed)  # past the property
    vars(optimizer).pop(_DISTRIBUTION, None)
    if _backend(optimizer) == flavours.TORCH:
        from horovod.torch.uncompiled import uncompiled

        # With jit_compile=True torch believes `__class__` and would take apply() from there: of the
        # object.
        vars(optimizer)["apply"] = types.MethodType(uncompiled(hook.apply), optimizer)
    distribution_of(optimizer)  # what can't work is said now, not in the first step


def _copied(optimizer: Any, copied: Callable[[Any], Any]) -> Any:
    """Made of the plain optimizer, which Keras may copy by its configuration."""
    distributed, members = type(optimizer), vars(optimizer)
    distribution = members.pop(_DISTRIBUTION, None)
    set_class = object.__dict__["__class__"].__set__
    set_class(optimizer, _plain_class(optimizer))
    try:
        result = copied(optimizer)
    finally:
        set_class(optimizer, distributed)
        if distribution is not None:
            members[_DISTRIBUTION] = distribution
    hook_into(result, distributed.__mro__[1], vars(distributed)[_OPTIONS])
    return result


def hand_over(giver: Any, taker: Any, hook: type) -> None:
    """Makes `taker` reduce in the place of `giver`, with
    its state, unless it is distributed already."""
    if not is_distributed(taker):
        distribution = distribution_of(giver)
        hook_into(taker, hook, distribution.options)
        vars(taker)[_DISTRIBUTION] = distribution


def _plain_class(optimizer: Any) -> Any:
    return type(optimizer).__mro__[2] if is_distributed(optimizer) else type(optimizer)


def is_distributed(optimizer: Any) -> bool:
    """Whether an optimizer has a hook."""
    return _OPTIONS in vars(type(optimizer))


def distribution_of(optimizer: Any) -> Distribution:
    """The state that goes with a distributed optimizer; also
    with one made by the class's from_config()."""
    members = vars(optimizer)
    if _DISTRIBUTION not in members:
        backend = _backend(optimizer)
        module = importlib.import_module(f"horovod._keras.{backend}_distribution")
        options: DistributedOptions = vars(type(optimizer))[_OPTIONS]
        make = getattr(module, _KINDS[backend])
        # Into the dictionary itself: the frameworks track, wrap or pass on attributes that are set.
        members[_DISTRIBUTION] = make(options, type(optimizer).__name__)
    distribution: Distribution = members[_DISTRIBUTION]
    return distribution


def _backend(optimizer: Any) -> str:
    if not flavours.is_keras3_optimizer(optimizer):
        return flavours.TENSORFLOW
    return flavours.backend_of(importlib.import_module("keras"))
