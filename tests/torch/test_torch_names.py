"""What programs find in horovod.torch: names, and the functions' parameters in order with their defaults."""

from __future__ import annotations

import inspect

import pytest
from util_packages import Lazy, needs

from horovod.common.process_sets import global_process_set

needs("torch")
hvd = Lazy("horovod.torch")

_SCALED = "prescale_factor=1.0 postscale_factor=1.0"
_SIGNATURES = {
    "allreduce": f"tensor average=None name=None compression op=None {_SCALED} process_set",
    "allreduce_": f"tensor average=None name=None op=None {_SCALED} process_set",
    "allreduce_async": f"tensor average=None name=None op=None {_SCALED} process_set",
    "allreduce_async_": f"tensor average=None name=None op=None {_SCALED} process_set",
    "grouped_allreduce": f"tensors average=None name=None compression op=None {_SCALED} process_set",
    "grouped_allreduce_": f"tensors average=None name=None op=None {_SCALED} process_set",
    "grouped_allreduce_async": f"tensors average=None name=None op=None {_SCALED} process_set",
    "grouped_allreduce_async_": f"tensors average=None name=None op=None {_SCALED} process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name=None process_set",
    "allgather_async": "tensor name=None process_set",
    "grouped_allgather": "tensors name=None process_set",
    "grouped_allgather_async": "tensors name=None process_set",
    "broadcast": "tensor root_rank name=None process_set",
    "broadcast_": "tensor root_rank name=None process_set",
    "broadcast_async": "tensor root_rank name=None process_set",
    "broadcast_async_": "tensor root_rank name=None process_set",
    "alltoall": "tensor splits=None name=None process_set",
    "alltoall_async": "tensor splits=None name=None process_set",
    "reducescatter": f"tensor name=None compression op=0 process_set {_SCALED}",
    "reducescatter_async": f"tensor name=None op=0 process_set {_SCALED}",
    "grouped_reducescatter": f"tensors name=None compression op=0 process_set {_SCALED}",
    "grouped_reducescatter_async": f"tensors name=None op=0 process_set {_SCALED}",
    "join": "device=-1",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model=None",
    "broadcast_object": "obj=None root_rank=0 name=None process_set",
    "allgather_object": "obj name=None",
    "SyncBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True",
    "DistributedOptimizer": "optimizer named_parameters=None compression backward_passes_per_step=1 op=0 "
    "gradient_predivide_factor=1.0 num_groups=0 groups=None sparse_as_dense=False process_set",
    "init": "comm=None process_sets=None",
    "start_timeline": "file_path mark_cycles=False",
}


def _text(function: object) -> str:
    shown = []
    assert callable(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default in (global_process_set, hvd.Compression.none):  # not to be seen in the table
            shown.append(name)
        else:
            default = parameter.default
            shown.append(name if default is inspect.Parameter.empty else f"{name}={default!r}")
    return " ".join(shown)


@pytest.mark.parametrize("name", _SIGNATURES)
def test_signature(name: str) -> None:
    # Further parameters may follow.
    assert f"{_text(getattr(hvd, name))} ".startswith(f"{_SIGNATURES[name]} ".lstrip())


def test_mpi_ops() -> None:
    ops = hvd.mpi_ops
    for name in ("HorovodInternalError", "is_homogeneous", "Compression", "_basics", *_SIGNATURES):
        helper = name.startswith(("broadcast_p", "broadcast_o", "allgather_ob", "Sync", "Distributed"))
        assert helper or hasattr(ops, name), name
    assert ops.num_rank_is_power_2(4) and not ops.num_rank_is_power_2(6)
    assert isinstance(ops.gpu_available("torch"), bool)
    assert ops.handle_average_backwards_compatibility(None, None) == hvd.Average
    assert ops.handle_average_backwards_compatibility(hvd.Max, None) == hvd.Max
    with pytest.warns(DeprecationWarning, match="average"):
        assert ops.handle_average_backwards_compatibility(None, False) == hvd.Sum
    with pytest.raises(ValueError, match="not both"):
        ops.handle_average_backwards_compatibility(hvd.Sum, True)
