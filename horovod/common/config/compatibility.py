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
        float,
        1.0,
        "HOROVOD_CYCLE_TIME",
        PERFORMANCE,
        "Period of the background loop elsewhere. This engine is event-driven and has no cycle.",
        unit="ms",
        flags=("--cycle-time-ms",),
        section="params",
        key="cycle_time_ms",
        minimum=0,
    )
    hierarchical_allreduce: bool = knob(
        bool,
        False,
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
        PERFORMANCE,
        "Reduce within each host before going across hosts.",
        flags=("--hierarchical-allreduce",),
        off_flags=("--no-hierarchical-allreduce",),
        section="params",
        key="hierarchical_allreduce",
    )
    hierarchical_allgather: bool = knob(
        bool,
        False,
        "HOROVOD_HIERARCHICAL_ALLGATHER",
        PERFORMANCE,
        "Gather within each host before going across hosts.",
        flags=("--hierarchical-allgather",),
        off_flags=("--no-hierarchical-allgather",),
        section="params",
        key="hierarchical_allgather",
    )
    torus_allreduce: bool = knob(
        bool,
        False,
        "HOROVOD_TORUS_ALLREDUCE",
        PERFORMANCE,
        "Two-dimensional variant of hierarchical allreduce for GPUs.",
        flags=("--torus-allreduce",),
        off_flags=("--no-torus-allreduce",),
        section="params",
        key="torus_allreduce",
    )
    batch_d2d_memcopies: bool = knob(
        bool,
        True,
        "HOROVOD_BATCH_D2D_MEMCOPIES",
        PERFORMANCE,
        "Copy into the fusion buffer with one GPU kernel.",
    )
    enable_async_completion: bool = knob(
        bool,
        False,
        "HOROVOD_ENABLE_ASYNC_COMPLETION",
        PERFORMANCE,
        "Complete GPU operations without host synchronisation.",
    )
    enable_xla_ops: bool = knob(
        bool,
        False,
        "HOROVOD_ENABLE_XLA_OPS",
        PERFORMANCE,
        "Register GPU operations for XLA.",
    )
    adasum_mpi_chunk_size: int = knob(
        int,
        1 << 30,
        "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
        PERFORMANCE,
        "Message size of Adasum over MPI.",
        unit="bytes",
        minimum=1,
    )
    ccl_cache: bool = knob(
        bool,
        False,
        "HOROVOD_CCL_CACHE",
        PERFORMANCE,
        "Operation cache of oneCCL.",
    )

    # Autotuning
    autotune: bool = knob(
        bool,
        False,
        "HOROVOD_AUTOTUNE",
        AUTOTUNE,
        "Search for good parameters during the first steps.",
        flags=("--autotune",),
        off_flags=("--no-autotune",),
        hidden_flags=("--no-autotune",),
        section="autotune",
        key="enabled",
        requires="autotune",
    )
    autotune_log: str | None = knob(
        str,
        None,
        "HOROVOD_AUTOTUNE_LOG",
        AUTOTUNE,
        "CSV file for the search.",
        flags=("--autotune-log-file",),
        section="autotune",
        key="log_file",
        requires="autotune",
    )
    autotune_warmup_samples: int = knob(
        int,
        3,
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        AUTOTUNE,
        "Samples thrown away first.",
        flags=("--autotune-warmup-samples",),
        section="autotune",
        key="warmup_samples",
        minimum=0,
        requires="autotune",
    )
    autotune_steps_per_sample: int = knob(
        int,
        10,
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        AUTOTUNE,
        "Steps that make one sample.",
        flags=("--autotune-steps-per-sample",),
        section="autotune",
        key="steps_per_sample",
        minimum=0,
        requires="autotune",
    )
    autotune_bayes_opt_max_samples: int = knob(
        int,
        20,
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        AUTOTUNE,
        "Most samples of the search.",
        flags=("--autotune-bayes-opt-max-samples",),
        section="autotune",
        key="bayes_opt_max_samples",
        minimum=0,
        requires="autotune",
    )
    autotune_gaussian_process_noise: float = knob(
        float,
        0.8,
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        AUTOTUNE,
        "Regularisation of the search.",
        flags=("--autotune-gaussian-process-noise",),
        section="autotune",
        key="gaussian_process_noise",
        minimum=0,
        maximum=1,
        requires="autotune",
    )

    # Logging
    disable_nvtx_ranges: bool = knob(
        bool,
        False,
        "HOROVOD_DISABLE_NVTX_RANGES",
        LOGGING,
        "No NVTX ranges for NVIDIA's profilers.",
    )

    # Libraries
    mpi_threads_disable: bool = knob(
        bool,
        False,
        "HOROVOD_MPI_THREADS_DISABLE",
        LIBRARY,
        "Ask MPI for a single thread.",
        flags=("--mpi-threads-disable",),
        off_flags=("--no-mpi-threads-disable",),
        hidden_flags=("--no-mpi-threads-disable",),
        section="library_options",
        key="mpi_threads_disable",
    )
    num_nccl_streams: int = knob(
        int,
        1,
        "HOROVOD_NUM_NCCL_STREAMS",
        LIBRARY,
        "GPU streams used in turn.",
        flags=("--num-nccl-streams",),
        section="library_options",
        key="num_nccl_streams",
        minimum=0,
    )

    # Identity and backends
    gloo_iface: str | None = knob(
        str,
        None,
        "HOROVOD_GLOO_IFACE",
        IDENTITY,
        "Network interface; the engine uses the one that leads to the rendezvous.",
    )

    # Launcher and integrations
    spark_start_timeout: float = knob(
        float,
        600.0,
        "HOROVOD_SPARK_START_TIMEOUT",
        LAUNCHER,
        "Time for Spark tasks to start.",
        unit="s",
        minimum=0,
        exclusive=True,
    )
    spark_pythonpath: str | None = knob(
        str, None, "HOROVOD_SPARK_PYTHONPATH", LAUNCHER, "PYTHONPATH of Spark's workers."
    )
    spark_work_dir: str | None = knob(
        str, None, "HOROVOD_SPARK_WORK_DIR", LAUNCHER, "Directory of Spark's workers."
    )
    spark_use_local_rank_gpu_index: bool = knob(
        bool,
        False,
        "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
        LAUNCHER,
        "Choose the GPU by local rank instead of Spark's assignment.",
    )
