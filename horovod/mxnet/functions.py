"""The same parameters on all ranks."""

from __future__ import annotations

from typing import Any

from horovod.common.handles import table
from horovod.mxnet.adapter import NDArray
from horovod.mxnet.framework import mx
from horovod.mxnet.ops import api


def only(parameter: Any, arrays: list[NDArray]) -> NDArray:
    """The one array of a gluon.Parameter; ValueError if it is on several devices."""
    if len(arrays) != 1:
        raise ValueError(
            f"parameter {parameter.name} is on {len(arrays)} devices; initialize it with one context, and "
            "start a process for each"
        )
    return arrays[0]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites arrays with the root's, in place: a dict of arrays, or Block.collect_params().

    Parameters whose shape is not known yet are broadcast when the first forward pass has initialized them.
    `prefix` goes before their names; of several models each needs its own.
    """
    if not isinstance(params, dict | mx.gluon.ParameterDict):
        raise ValueError(
            f"params must be a dict of arrays or a gluon.ParameterDict, got {type(params).__name__}"
        )
    ready: list[tuple[str, NDArray]] = []
    for key in sorted(params.keys()):
        name, value = f"{prefix or ''}{key}", params[key]
        if isinstance(value, mx.gluon.Parameter):
            try:
                ready.append((name, only(value, value.list_data())))
            except mx.gluon.parameter.DeferredInitializationError:
                _broadcast_when_initialized(value, root_rank, name)
        else:
            ready.append((name, value))
    handles = [api.broadcast_async_(array, root_rank, name) for name, array in ready]
    for handle in handles:
        table.synchronize(handle)


def _broadcast_when_initialized(parameter: Any, root_rank: int, name: str) -> None:
    initialize = parameter._init_impl

    def then_broadcast(*args: Any, **kwargs: Any) -> None:
        del parameter._init_impl  # this once: what comes later may be for one rank only
        initialize(*args, **kwargs)
        api.broadcast_(only(parameter, parameter.list_data()), root_rank, name)

    parameter._init_impl = then_broadcast
