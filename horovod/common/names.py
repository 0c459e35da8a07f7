"""Every public name of the original Horovod 0.28, and whether it is here.

The page is made of this table:

python -m horovod.common.names > docs/names.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from horovod._absent import ABSENT, ABSENT_NAMES, sentence


class Verdict(Enum):
    """Whether a program that uses the name runs."""

    YES = "yes"
    DIFFERS = "differs"
    NO = "no"


@dataclass(frozen=True)
class Entry:
    """Names of one module about which the same is to be said."""

    module: str
    names: tuple[str, ...]
    verdict: Verdict
    text: str = ""  # how it differs, or what to use instead


def _yes(names: str, text: str = "") -> tuple[str, Verdict, str]:
    return names, Verdict.YES, text


def _differs(names: str, text: str) -> tuple[str, Verdict, str]:
    return names, Verdict.DIFFERS, text


def _no(names: str, text: str) -> tuple[str, Verdict, str]:
    return names, Verdict.NO, text


_GLOO = _differs(
    "gloo_built gloo_enabled", "stand for the engine's own shared memory and TCP, which is always there"
)
_MPI = _differs(
    "mpi_built mpi_enabled mpi_threads_supported",
    "MPI is found at run time, through mpi4py; used only where it is asked for",
)
_DEVICES = _differs(
    "nccl_built cuda_built rocm_built ddl_built ccl_built",
    "always 0 or False: data of GPUs goes through host memory",
)
_WHO = _yes("is_initialized rank size local_rank local_size cross_rank cross_size")
_LIFE = _yes("init shutdown start_timeline stop_timeline", "ranks also from srun, torchrun and Kubernetes")
_BASICS = (_LIFE, _WHO, _GLOO, _MPI, _DEVICES)
_OPS = _yes("Average Sum Adasum Min Max Product")
_SETS = _yes("ProcessSet global_process_set add_process_set remove_process_set")
_COMPRESSION = _yes("Compression", "also `bf16`")
_JOIN = _differs(
    "join", "a rank that has joined adds what changes nothing: not zeros to Min, Max and Product"
)
_BROADCAST_OPTIMIZER_STATE = _differs(
    "broadcast_optimizer_state", "runs no step: a fresh optimizer's state stays empty"
)
_SYNC_BATCH_NORM = _differs("SyncBatchNorm", "works on the CPU, too")
_KERAS_OPTIMIZER = (
    "reduces where gradients are applied, so also in a loop of your own that calls `apply_gradients()`; "
    "returns the same optimizer with its state"
)
_KERAS_CALLBACKS = (
    _yes("BroadcastGlobalVariablesCallback MetricAverageCallback"),
    _yes(
        "LearningRateScheduleCallback LearningRateWarmupCallback",
        "`initial_lr` of the latter may be left out",
    ),
    _differs("BestModelCheckpoint", "with Keras 3 set its `filepath` before training"),
)
_KERAS_ELASTIC = (
    _differs("KerasState", "copies to host memory; what was synced is saved, too"),
    _yes("run"),
    _differs(
        "CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback",
        "in any order; the first epoch after a change is indeed shortened",
    ),
)
_KERAS = (
    *_BASICS,
    _yes("Average Sum global_process_set Compression is_homogeneous callbacks elastic"),
    _yes("allreduce allgather broadcast reducescatter load_model"),
    _differs("DistributedOptimizer", _KERAS_OPTIMIZER),
    _differs("broadcast_global_variables", "`RuntimeError` outside of a TF1 graph: use the callback"),
)

_TABLE: dict[str, tuple[tuple[str, Verdict, str], ...]] = {
    "horovod": (
        _yes("run"),
        _differs("__version__", "counts from 1.0"),
    ),
    "horovod.torch": (
        *_BASICS,
        _OPS,
        _SETS,
        _COMPRESSION,
        _yes(
            "allreduce allreduce_ allreduce_async allreduce_async_", "also bfloat16, bool, complex, strided"
        ),
        _yes(
            "grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_ "
            "sparse_allreduce_async allgather allgather_async grouped_allgather grouped_allgather_async "
            "broadcast broadcast_ broadcast_async broadcast_async_ alltoall alltoall_async "
            "reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async "
            "barrier poll synchronize broadcast_parameters broadcast_object allgather_object "
            "DistributedOptimizer HorovodInternalError mpi_ops elastic"
        ),
        _JOIN,
        _BROADCAST_OPTIMIZER_STATE,
        _SYNC_BATCH_NORM,
    ),
    "horovod.torch.elastic": (
        _differs("TorchState", "copies to host memory; what was synced is saved, too; also for schedulers"),
        _yes("ElasticSampler run state sampler"),
    ),
    "horovod.torch.elastic.state": (
        _yes("TorchState StateHandler ModelStateHandler OptimizerStateHandler SamplerStateHandler"),
        _yes("get_handler_registry set_handler_registry"),
    ),
    "horovod.torch.elastic.sampler": (
        _yes("ElasticSampler", "also when fewer samples are left than there are ranks"),
    ),
    "horovod.torch.mpi_ops": (
        *_BASICS,
        _OPS,
        _SETS,
        _yes(
            "allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_ "
            "grouped_allreduce_async grouped_allreduce_async_ sparse_allreduce_async allgather "
            "allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_ "
            "broadcast_async broadcast_async_ "
            "alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter "
            "grouped_reducescatter_async barrier poll synchronize Compression HorovodInternalError"
        ),
        _JOIN,
        _yes(
            "is_homogeneous _basics handle_average_backwards_compatibility num_rank_is_power_2 gpu_available"
        ),
    ),
    "horovod.torch.compression": (_yes("Compressor NoneCompressor FP16Compressor Compression"),),
    "horovod.torch.functions": (
        _yes("broadcast_parameters broadcast_object allgather_object"),
        _BROADCAST_OPTIMIZER_STATE,
    ),
    "horovod.torch.optimizer": (_yes("DistributedOptimizer"),),
    "horovod.torch.sync_batch_norm": (_SYNC_BATCH_NORM,),
    "horovod.tensorflow": (
        *_BASICS,
        _OPS,
        _SETS,
        _COMPRESSION,
        _yes(
            "allreduce grouped_allreduce allgather grouped_allgather broadcast broadcast_ alltoall "
            "reducescatter grouped_reducescatter size_op rank_op local_size_op local_rank_op "
            "process_set_included_op broadcast_variables broadcast_global_variables "
            "BroadcastGlobalVariablesHook broadcast_object broadcast_object_fn allgather_object "
            "DistributedGradientTape PartialDistributedGradientTape is_homogeneous "
            "handle_average_backwards_compatibility check_num_rank_power_of_2 _executing_eagerly "
            "LocalGradientAggregationHelper HorovodInternalError elastic"
        ),
        _JOIN,
        _differs(
            "DistributedOptimizer",
            f"Keras optimizers: heeds `op` and `groups`, {_KERAS_OPTIMIZER}; TF1's as they were",
        ),
        _yes("SyncBatchNormalization", "`fused=False` only, as ever"),
    ),
    "horovod.tensorflow.elastic": (
        _differs("TensorFlowState TensorFlowKerasState", "broadcast in `sync()`, never when they are made"),
        _differs("run", "also in `sync()`, also for grouped operations; other errors are passed on"),
    ),
    "horovod.tensorflow.mpi_ops": (
        *_BASICS,
        _OPS,
        _SETS,
        _yes(
            "_allreduce _grouped_allreduce allgather grouped_allgather broadcast broadcast_ alltoall "
            "_reducescatter _grouped_reducescatter size_op rank_op local_size_op local_rank_op "
            "process_set_included_op"
        ),
        _JOIN,
        _yes(
            "is_homogeneous _basics _normalize_name handle_average_backwards_compatibility "
            "num_rank_is_power_2 check_num_rank_power_of_2 gpu_available"
        ),
    ),
    "horovod.tensorflow.compression": (_yes("Compressor NoneCompressor FP16Compressor Compression"),),
    "horovod.tensorflow.functions": (
        _yes("broadcast_variables broadcast_global_variables BroadcastGlobalVariablesHook"),
        _yes("broadcast_object broadcast_object_fn allgather_object"),
    ),
    "horovod.tensorflow.gradient_aggregation": (_yes("LocalGradientAggregationHelper"),),
    "horovod.tensorflow.sync_batch_norm": (_yes("SyncBatchNormalization", "`fused=False` only, as ever"),),
    "horovod.tensorflow.util": (_yes("_executing_eagerly _make_subgraph _cache"),),
    "horovod.tensorflow.data.compute_service": (
        _yes("TfDataServiceConfig tf_data_service send_to_data_service compute_worker_fn"),
    ),
    "horovod.tensorflow.keras": (*_KERAS, _SETS),
    "horovod.tensorflow.keras.callbacks": _KERAS_CALLBACKS,
    "horovod.tensorflow.keras.elastic": _KERAS_ELASTIC,
    "horovod.keras": (*_KERAS, _yes("Adasum"), _differs("PartialDistributedOptimizer", _KERAS_OPTIMIZER)),
    "horovod.keras.callbacks": _KERAS_CALLBACKS,
    "horovod.keras.elastic": _KERAS_ELASTIC,
    "horovod.mxnet": (
        *_BASICS,
        _OPS,
        _SETS,
        _yes("broadcast_object allgather_object is_homogeneous Compression HorovodInternalError"),
        _differs(
            "allreduce allreduce_ grouped_allreduce grouped_allreduce_ allgather grouped_allgather broadcast "
            "broadcast_ alltoall reducescatter grouped_reducescatter",
            "wait for their results, `priority` has no effect; arrays on the CPU; errors of the engine are "
            "`HorovodInternalError`, which is a `RuntimeError` as `MXNetError` is",
        ),
        _yes("broadcast_parameters"),
        _differs("DistributedOptimizer DistributedTrainer", "average in the engine: `rescale_grad` stays"),
    ),
    "horovod.data": (_yes("BaseDataLoader"), _differs("AsyncDataLoaderMixin", "logs instead of printing")),
    "horovod.common.exceptions": (
        _yes("HorovodInternalError HostsUpdatedInterrupt"),
        _differs("HorovodVersionMismatchError", "never raised: nothing is compiled against a framework"),
    ),
    "horovod.common.basics": (_yes("HorovodBasics"),),
    "horovod.common.elastic": (
        _yes("State run_fn notification_manager"),
        _differs("ObjectState", "copies what it saves, and sends what was reached"),
    ),
    "horovod.common.process_sets": (_SETS,),
    "horovod.common.util": (
        _yes(
            "extension_available gpu_available env split_list is_iterable num_rank_is_power_2 "
            "is_version_greater_equal_than check_extension support_non_legacy_keras_optimizers "
            "get_average_backwards_compatibility_fun _cache"
        ),
        _differs("gloo_built mpi_built nccl_built ddl_built ccl_built", "as in the modules above"),
    ),
    "horovod.runner": (_yes("run"),),
    "horovod.runner.launch": (
        _yes("run_commandline"),
        _differs("parse_args", "settings are the texts that were given; takes the words as an argument, too"),
        _differs("run_controller is_gloo_used", "the own launcher, not mpirun, is the default"),
    ),
    "horovod.runner.common.util.env": (_yes("get_env_rank_and_size is_exportable KUBEFLOW_MPI_EXEC"),),
    "horovod.runner.common.util.hosts": (
        _yes("HostInfo SlotInfo parse_hosts parse_hosts_and_slots parse_host_files get_host_assignments"),
    ),
    "horovod.runner.common.util.settings": (
        _differs("BaseSettings Settings", "also say themselves as flags of horovodrun, `flags()`"),
    ),
    "horovod.runner.common.util.timeout": (_yes("Timeout TimeoutException"),),
    "horovod.runner.common.util.secret": (
        _yes("make_secret_key compute_digest check_digest HOROVOD_SECRET_KEY DIGEST_LENGTH"),
    ),
    "horovod.runner.common.util.network": (
        _yes("get_local_host_addresses get_driver_ip filter_local_addresses resolve_host_address"),
    ),
    "horovod.runner.common.util.safe_shell_exec": (
        _differs("execute", "also takes a list of words; writes no times"),
        _yes("GRACEFUL_TERMINATION_TIME_S"),
    ),
    "horovod.runner.elastic.discovery": (_yes("HostDiscovery HostDiscoveryScript FixedHosts"),),
    "horovod.runner.elastic.settings": (_yes("ElasticSettings"),),
    "horovod.runner.elastic.worker": (_yes("HostUpdateResult"),),
    "horovod.runner.elastic.constants": (_yes("RESET_LIMIT_EXCEEDED_MESSAGE"),),
    "horovod.runner.util.threads": (_yes("in_thread on_event execute_function_multithreaded"),),
}

# Of modules that are not there; the sentence is the module's.
_ABSENT_NAMES = {
    "horovod.ray": "RayExecutor ElasticRayExecutor BaseHorovodWorker",
    "horovod.spark": "run run_elastic keras.KerasEstimator keras.KerasModel torch.TorchEstimator "
    "torch.TorchModel lightning.TorchEstimator common.store.Store common.backend.SparkBackend",
}


def entries() -> Iterator[Entry]:
    """The whole table: modules that are there, then the others."""
    for module, rows in _TABLE.items():
        for names, verdict, text in rows:
            yield Entry(module, tuple(names.split()), verdict, text or sentence(f"{module}.{names}") or "")
        for names, instead in ABSENT_NAMES.get(module, {}).items():
            yield Entry(module, tuple(names.split()), Verdict.NO, instead)
    for module, instead in ABSENT.items():
        yield Entry(module, tuple(_ABSENT_NAMES.get(module, "").split()), Verdict.NO, instead)


def page() -> str:
    """docs/names.md."""
    table = list(entries())
    lines = [
        "<!-- Generated: python -m horovod.common.names > docs/names.md -->",
        "# What is not there",
        "",
        "Every public name of the original Horovod 0.28: **yes**, programs that use it run as they are;",
        "**differs**, and how; **no**, and what to use instead. Tests compare the table with the package.",
        "Programs and command lines of older documents are in [compatibility.md](compatibility.md), flags",
        "and variables in [knobs.md](knobs.md).",
        "",
        "## No",
        "",
        "Importing one of these modules, or what was below it, is an `ImportError` that says this.",
        "",
        "| Modules | Instead |",
        "| --- | --- |",
    ]
    for instead in dict.fromkeys(ABSENT.values()):
        absent = [entry for entry in table if entry.module in ABSENT and entry.text == instead]
        lines.append(_row("; ".join(map(_with_names, absent)), instead))
    for module in _TABLE:
        lines += ["", f"## `{module}`", "", "| Names | | |", "| --- | --- | --- |"]
        own = [entry for entry in table if entry.module == module]
        lines += [_row(_listed(entry), f"**{entry.verdict.value}**", entry.text) for entry in own]
    return "\n".join(lines) + "\n"


def _with_names(entry: Entry) -> str:
    return f"`{entry.module}`: {_listed(entry)}" if entry.names else f"`{entry.module}`"


def _listed(entry: Entry) -> str:
    return ", ".join(f"`{name}`" for name in entry.names)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
