"""The functions' parameters, in order and with their defaults: programs pass them by position and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from util_packages import Lazy, needs

from horovod.common.process_sets import global_process_set

needs("tensorflow")
tensorflow, tf_keras, keras = map(Lazy, ("horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras"))

_TENSORFLOW = {
    "allreduce": "tensor average=None device_dense='' device_sparse='' compression op=None "
    "prescale_factor=1.0 postscale_factor=1.0 name=None process_set ignore_name_scope=False",
    "grouped_allreduce": "tensors average=None device_dense='' device_sparse='' compression op=None "
    "prescale_factor=1.0 postscale_factor=1.0 process_set ignore_name_scope=False name=None",
    "allgather": "tensor name=None ignore_name_scope=False process_set",
    "grouped_allgather": "tensors name=None ignore_name_scope=False process_set",
    "broadcast": "tensor root_rank name=None ignore_name_scope=False process_set",
    "broadcast_": "variables root_rank name=None process_set",
    "alltoall": "tensor splits=None name=None ignore_name_scope=False process_set",
    "reducescatter": "tensor device_dense='' compression op=0 name=None process_set ignore_name_scope=False "
    "prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter": "tensors device_dense='' compression op=0 process_set prescale_factor=1.0 "
    "postscale_factor=1.0",
    "join": "",
    "size_op": "process_set_id=0 name=None",
    "process_set_included_op": "process_set_id=0 name=None",
    "local_size_op": "name=None",
    "rank_op": "name=None",
    "local_rank_op": "name=None",
    "broadcast_variables": "variables root_rank process_set inplace=False",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank device=''",
    "broadcast_object": "obj root_rank=0 session=None name=None process_set",
    "allgather_object": "obj session=None name=None process_set",
    "broadcast_object_fn": "root_rank=0 session=None name=None process_set",
    "DistributedOptimizer": "optimizer name=None use_locking=False device_dense='' device_sparse='' "
    "compression sparse_as_dense=False backward_passes_per_step=1 op=0 gradient_predivide_factor=1.0 "
    "average_aggregated_gradients=False num_groups=0 groups=None process_set scale_local_gradients=True",
    "DistributedGradientTape": "gradtape device_dense='' device_sparse='' compression sparse_as_dense=False "
    "op=0 gradient_predivide_factor=1.0 num_groups=0 groups=None process_set scale_local_gradients=True",
    "PartialDistributedGradientTape": "gradtape device_dense='' device_sparse='' compression "
    "sparse_as_dense=False op=0 gradient_predivide_factor=1.0 num_groups=0 groups=None process_set "
    "local_layers=None scale_local_gradients=True",
    "init": "comm=None process_sets=None",
    "start_timeline": "file_path mark_cycles=False",
}
_OPTIMIZER = (
    "optimizer name=None device_dense='' device_sparse='' compression sparse_as_dense=False "
    "gradient_predivide_factor=1.0 op=0 "
)
_BOTH_KERAS = {
    "broadcast_global_variables": "root_rank",
    "allreduce": "value name=None average=None prescale_factor=1.0 postscale_factor=1.0 op=None compression",
    "allgather": "value name=None",
    "broadcast": "value root_rank name=None",
    "reducescatter": "value name=None op=0",
    "load_model": "filepath custom_optimizers=None custom_objects=None compression legacy_opts=False",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank device='' local_variables=None",
    "callbacks.MetricAverageCallback": "device=''",
    "callbacks.LearningRateScheduleCallback": "initial_lr multiplier start_epoch=0 end_epoch=None "
    "staircase=True momentum_correction=True steps_per_epoch=None",
    # Also without the first, as older programs call it.
    "callbacks.LearningRateWarmupCallback": "initial_lr=None warmup_epochs=5 momentum_correction=True "
    "steps_per_epoch=None verbose=0",
}
_TF_KERAS = {
    **_BOTH_KERAS,
    "callbacks.BestModelCheckpoint": "monitor='val_loss' verbose=0 save_weights_only=False mode='auto' "
    "save_freq='epoch'",
    "DistributedOptimizer": _OPTIMIZER + "backward_passes_per_step=1 average_aggregated_gradients=False "
    "num_groups=0 groups=None process_set scale_local_gradients=True",
}
_KERAS = {
    **_BOTH_KERAS,
    "callbacks.BestModelCheckpoint": "monitor='val_loss' verbose=0 mode='auto' save_freq='epoch' "
    "save_weights_only=False",
    "DistributedOptimizer": _OPTIMIZER + "num_groups=0 groups=None **options",
    "PartialDistributedOptimizer": _OPTIMIZER + "backward_passes_per_step=1 "
    "average_aggregated_gradients=False groups=None process_set local_layers=None scale_local_gradients=True",
}
_ALL = [
    (module, name, expected)
    for module, table in ((tensorflow, _TENSORFLOW), (tf_keras, _TF_KERAS), (keras, _KERAS))
    for name, expected in table.items()
]


def shown(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.name == "process_set":
        assert parameter.default is global_process_set
        return parameter.name
    if parameter.name == "compression":  # Compression.none, or None that stands for it
        assert parameter.default is None or parameter.default.__name__ == "NoneCompressor"
        return parameter.name
    return parameter.name + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")


@pytest.mark.parametrize(
    ("module", "name", "expected"), _ALL, ids=[f"{module.__name__}.{name}" for module, name, _ in _ALL]
)
def test_signature(module: Any, name: str, expected: str) -> None:
    function: Callable[..., Any] = module
    for part in name.split("."):
        function = getattr(function, part)
    parameters = inspect.signature(function).parameters.values()
    assert " ".join(map(shown, parameters)) == expected


def test_mpi_ops() -> None:
    ops = tensorflow.mpi_ops
    assert ops.check_num_rank_power_of_2(4) and not ops.check_num_rank_power_of_2(6)
    assert ops.num_rank_is_power_2(8) and isinstance(ops.gpu_available("tensorflow"), bool)
    assert ops.add_process_set is tensorflow.add_process_set
    assert ops.remove_process_set is tensorflow.remove_process_set
    assert ops.handle_average_backwards_compatibility(None, None) == ops.Average
    with pytest.warns(DeprecationWarning, match="average"):
        assert ops.handle_average_backwards_compatibility(None, False) == ops.Sum
