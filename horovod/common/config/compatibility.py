"""Settings of the original Horovod that programs and
scripts give and that do nothing in this engine."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.common.config.knob import AUTOTUNE, IDENTITY, LAUNCHER, LIBRARY, LOGGING, PERFORMANCE, knob


@dataclass(frozen=True, init=False, repr=False)
class WithoutEffect:
    """They are checked like the others, so that a typing error is found all the same."""

    # Performance
    cycle_time: float = knob(
        1.0,
        PERFORMANCE,
        "Period of the background loop elsewhere. This engine is event-driven and has no cycle.",
        unit="ms",
        flag="--cycle-time-ms",
        minimum=0,
        file="params.cycle_time_ms",
    )
    hierarchical_allreduce: bool = knob(
        False,
        PERFORMANCE,
        "Reduce within each host before going across hosts.",
        switch="--hierarchical-allreduce",
        file="params.hierarchical_allreduce",
    )
    hierarchical_allgather: bool = knob(
        False,
        PERFORMANCE,
        "Gather within each host before going across hosts.",
        switch="--hierarchical-allgather",
        file="params.hierarchical_allgather",
    )
    torus_allreduce: bool = knob(
        False,
        PERFORMANCE,
        "Two-dimensional variant of hierarchical allreduce for GPUs.",
        switch="--torus-allreduce",
        file="params.torus_allreduce",
    )
    batch_d2d_memcopies: bool = knob(True, PERFORMANCE, "Copy into the fusion buffer with one GPU kernel.")
    enable_async_completion: bool = knob(
        False, PERFORMANCE, "Complete GPU operations without host synchronisation."
    )
    enable_xla_ops: bool = knob(False, PERFORMANCE, "Register GPU operations for XLA.")
    adasum_mpi_chunk_size: int = knob(
        1 << 30, PERFORMANCE, "Message size of Adasum over MPI.", unit="bytes", minimum=1
    )
    ccl_cache: bool = knob(False, PERFORMANCE, "Operation cache of oneCCL.")

    # Autotuning
    autotune_gaussian_process_noise: float = knob(
        0.8,
        AUTOTUNE,
        "Regularisation of the search.",
        flag="--autotune-gaussian-process-noise",
        minimum=0,
        maximum=1,
        requires="autotune",
        file="autotune.gaussian_process_noise",
    )

    # Logging
    disable_nvtx_ranges: bool = knob(False, LOGGING, "No NVTX ranges for NVIDIA's profilers.")

    # Libraries
    mpi_threads_disable: bool = knob(
        False,
        LIBRARY,
        "Ask MPI for a single thread.",
        switch="--mpi-threads-disable",
        hidden_flags=("--no-mpi-threads-disable",),
        file="library_options.mpi_threads_disable",
    )
    num_nccl_streams: int = knob(
        1,
        LIBRARY,
        "GPU streams used in turn.",
        flag="--num-nccl-streams",
        minimum=0,
        file="library_options.num_nccl_streams",
    )

    # Identity and backends
    gloo_iface: str | None = knob(
        None, IDENTITY, "Network interface; the engine uses the one that leads to the rendezvous."
    )

    # Launcher and integrations
    spark_start_timeout: float = knob(
        600.0, LAUNCHER, "Time for Spark tasks to start.", unit="s", minimum=0, exclusive=True
    )
    spark_pythonpath: str | None = knob(None, LAUNCHER, "PYTHONPATH of Spark's workers.")
    spark_work_dir: str | None = knob(None, LAUNCHER, "Directory of Spark's workers.")
    spark_use_local_rank_gpu_index: bool = knob(
        False, LAUNCHER, "Choose the GPU by local rank instead of Spark's assignment."
    )
