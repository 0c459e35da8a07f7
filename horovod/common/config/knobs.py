"""The table of the settings, and how they are read from the environment."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from horovod.common.config.compatibility import WithoutEffect
from horovod.common.config.knob import (
    AUTOTUNE,
    FAILURE,
    IDENTITY,
    LAUNCHER,
    LOGGING,
    PERFORMANCE,
    STALL,
    TIMELINE,
    Knob,
    knob,
    knob_of,
)

MIB = 1024 * 1024


# What dataclass() would generate for all the fields takes every rank longer than the rest of this
# module.
@dataclass(frozen=True, init=False, repr=False)
class Config(WithoutEffect):
    """The settings of one process.

    Durations are seconds and sizes bytes unless described otherwise.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)  # the others have their defaults from the class

    # Performance
    fusion_threshold: int = knob(
        128 * MIB,
        PERFORMANCE,
        "Most bytes of tensors that are fused into one operation; 0 switches fusion off. "
        "Flag and config file count in MiB.",
        unit="bytes",
        flag="--fusion-threshold-mb",
        scale=MIB,
        minimum=0,
        file="params.fusion_threshold_mb",
    )
    cache_capacity: int = knob(
        1024,
        PERFORMANCE,
        "Number of negotiated tensors that are remembered, so that the next step sends a number instead of a "
        "description; 0 remembers none.",
        flag="--cache-capacity",
        minimum=0,
        file="params.cache_capacity",
    )
    disable_group_fusion: bool = knob(
        False,
        PERFORMANCE,
        "Keep explicit groups of tensors apart from other tensors instead of fusing them together.",
    )
    thread_affinity: tuple[int, ...] | None = knob(
        None,
        PERFORMANCE,
        "Cores for the engine threads, one per local rank in order.",
        flag="--thread-affinity",
        file="library_options.thread_affinity",
    )
    dynamic_process_sets: bool = knob(
        False, PERFORMANCE, "Allow add_process_set() and remove_process_set() after init()."
    )
    transport: str = knob(
        "auto",
        PERFORMANCE,
        "How data travels: shared memory, TCP, or the better one of those that all ranks can use.",
        choices=("auto", "shm", "tcp"),
    )
    encryption: str = knob(
        "none",
        PERFORMANCE,
        "data: tensors and objects that leave a process through TCP are encrypted and authenticated with "
        "AES-256-GCM of OpenSSL's libcrypto, which must be installed. The same on all ranks.",
        choices=("none", "data"),
    )
    streams_per_peer: int = knob(
        1,
        PERFORMANCE,
        "TCP connections that carry the data between a rank and one of another host, side by side, for "
        "networks in which one alone can't fill the link. The same on all ranks.",
        flag="--streams-per-peer",
        minimum=1,
        maximum=16,
        file="params.streams_per_peer",
    )
    topology: tuple[int, ...] | None = knob(
        None,
        PERFORMANCE,
        "Numbers of ranks that are combined first, in rank order: 2,2,2 lets six ranks on one host give the "
        "same bits as on three hosts with two ranks each. Unset: the ranks of each host.",
        minimum=1,
    )

    # Autotuning
    autotune: bool = knob(
        False,
        AUTOTUNE,
        "Search during the first 400 steps, at most 60 s, for parameters that make steps shorter. Results "
        "stay the same bits, and the defaults stay unless a gain is confirmed.",
        switch="--autotune",
        hidden_flags=("--no-autotune",),
        requires="autotune",
        file="autotune.enabled",
    )
    autotune_log: str | None = knob(
        None,
        AUTOTUNE,
        "CSV file for what was tried, written by rank 0.",
        flag="--autotune-log-file",
        requires="autotune",
        file="autotune.log_file",
    )
    autotune_warmup_samples: int = knob(
        3,
        AUTOTUNE,
        "Samples that don't count, after the first ten steps, which don't count either.",
        flag="--autotune-warmup-samples",
        minimum=0,
        requires="autotune",
        file="autotune.warmup_samples",
    )
    autotune_steps_per_sample: int = knob(
        2,
        AUTOTUNE,
        "Steps that make one sample. The search takes 195 samples at most.",
        flag="--autotune-steps-per-sample",
        minimum=1,
        requires="autotune",
        file="autotune.steps_per_sample",
    )
    autotune_bayes_opt_max_samples: int = knob(
        20,
        AUTOTUNE,
        "Most sets of parameters that are tried.",
        flag="--autotune-bayes-opt-max-samples",
        minimum=0,
        requires="autotune",
        file="autotune.bayes_opt_max_samples",
    )
    autotune_profile: str = knob(
        "auto",
        AUTOTUNE,
        "File in which a gain is kept and that the next job tries first. auto: one in ~/.cache/horovod for "
        "machines, ranks and hosts like these; off: none.",
    )

    # Timeline
    timeline: str | None = knob(
        None,
        TIMELINE,
        "File for a trace of all operations in Chrome's JSON format, written by rank 0; "
        "DYNAMIC leaves it to start_timeline() and stop_timeline().",
        flag="--timeline-filename",
        file="timeline.filename",
    )
    timeline_mark_cycles: bool = knob(
        False,
        TIMELINE,
        "Mark each round of negotiation in the trace.",
        switch="--timeline-mark-cycles",
        hidden_flags=("--no-timeline-mark-cycles",),
        requires="timeline",
        file="timeline.mark_cycles",
    )
    timeline_ranks: str = knob(
        "0",
        TIMELINE,
        "Whose operations are recorded: those of rank 0, or with `all` those of every rank, each in a file "
        "of its own beside HOROVOD_TIMELINE that `python -m horovod.timeline merge` reads.",
        choices=("0", "all"),
    )
    timeline_buffer: int = knob(
        8 * MIB,
        TIMELINE,
        "What a rank keeps of the timeline until it is written. What does not fit is left out and counted.",
        unit="bytes",
        minimum=4096,
    )

    # Stall check
    stall_check_disable: bool = knob(
        False,
        STALL,
        "Switch off the warning about tensors that only some ranks have submitted. "
        "The config-file key says the opposite.",
        flags=("--no-stall-check",),
        off_flags=("--stall-check",),
        hidden_flags=("--stall-check",),
        inverted=True,
        file="stall_check.enabled",
    )
    stall_check_time_seconds: float = knob(
        60.0,
        STALL,
        "Age of such a tensor at which rank 0 warns and names the missing ranks.",
        unit="s",
        flag="--stall-check-warning-time-seconds",
        minimum=0,
        file="stall_check.warning_time_seconds",
    )
    stall_shutdown_time_seconds: float = knob(
        0.0,
        STALL,
        "Age of such a tensor at which the job is ended; 0 means never.",
        unit="s",
        flag="--stall-check-shutdown-time-seconds",
        minimum=0,
        file="stall_check.shutdown_time_seconds",
    )

    stall_stacks: bool = knob(
        True,
        STALL,
        "Ask ranks that others wait for where their threads are, and say so in the warning.",
        switch="--stall-stacks",
    )
    stack_signal: str = knob(
        "SIGRTMIN+9",
        STALL,
        "Signal for that where Python can't answer, because a call of C keeps its lock: a name or a number. "
        "`none` installs no handler.",
    )

    # Logging
    log_level: str = knob(
        "warning",
        LOGGING,
        "Least severity that is logged.",
        flag="--log-level",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        tolerant=True,
        file="logging.level",
    )
    metrics_address: str | None = knob(
        None,
        LOGGING,
        "Address and port, as 127.0.0.1:9400, where rank 0 serves its metrics for Prometheus at /metrics, to "
        "those who have the token. For jobs that horovodrun's dashboard does not serve.",
    )
    log_hide_time: bool = knob(
        False,
        LOGGING,
        "Leave the time out of the engine's log lines. The config-file key says the opposite.",
        flags=("--log-without-timestamp", "--log-hide-timestamp"),
        off_flags=("--log-with-timestamp", "--no-log-hide-timestamp"),
        hidden_flags=("--log-with-timestamp",),
        deprecated_flags=("--log-hide-timestamp", "--no-log-hide-timestamp"),
        inverted=True,
        file="logging.with_timestamp",
    )

    # Failure detection
    peer_timeout_seconds: float = knob(
        3.0,
        FAILURE,
        "Silence after which another rank of the same host is given up. A rank that dies is noticed at "
        "once; this is for ranks that are stopped.",
        unit="s",
        minimum=0.2,
        exclusive=True,
    )
    host_timeout_seconds: float = knob(
        10.0,
        FAILURE,
        "Silence after which a rank of another host is given up: it is stopped or cut off. A network that "
        "fails for less does not end the job. horovodrun and its agents give a silent machine up a second or "
        "two later.",
        unit="s",
        minimum=0.2,
        exclusive=True,
    )
    gloo_timeout_seconds: float = knob(
        30.0,
        FAILURE,
        "Time for all ranks to find each other in init().",
        unit="s",
        flag="--gloo-timeout-seconds",
        minimum=0,
        exclusive=True,
        file="library_options.gloo_timeout_seconds",
    )

    # Identity and backends
    controller: str | None = knob(
        None,
        IDENTITY,
        "mpi: MPI moves the data, as with HOROVOD_CPU_OPERATIONS. The ranks negotiate over the engine's own "
        "sockets either way.",
        choices=("gloo", "mpi"),
    )
    cpu_operations: str | None = knob(
        None,
        IDENTITY,
        "Who moves the data of CPU tensors. gloo stands for the engine's own transports, and so does ccl.",
        choices=("gloo", "mpi", "ccl"),
    )
    rank: int | None = knob(None, IDENTITY, "This process among all.", minimum=0)
    size: int | None = knob(None, IDENTITY, "Number of processes.", minimum=1)
    local_rank: int | None = knob(None, IDENTITY, "This process among those of its host.", minimum=0)
    local_size: int | None = knob(None, IDENTITY, "Number of processes on this host.", minimum=1)
    cross_rank: int | None = knob(
        None, IDENTITY, "This host among those that have this local rank.", minimum=0
    )
    cross_size: int | None = knob(None, IDENTITY, "Number of hosts that have this local rank.", minimum=1)
    hostname: str | None = knob(None, IDENTITY, "Name of this host as the launcher was given it.")
    rendezvous_addr: str | None = knob(
        None,
        IDENTITY,
        "Where the ranks meet: the launcher, or the host of rank 0.",
        env="HOROVOD_GLOO_RENDEZVOUS_ADDR",
    )
    rendezvous_port: int | None = knob(
        None, IDENTITY, "Port of the same.", env="HOROVOD_GLOO_RENDEZVOUS_PORT", minimum=1, maximum=65535
    )
    secret_key_file: str | None = knob(
        None,
        IDENTITY,
        "File with 32 bytes or more that only you can read, the same on all hosts: the secret of jobs that "
        "horovodrun has not started and that find no other way to share one.",
    )
    elastic: bool = knob(
        False,
        IDENTITY,
        "The number of processes may change during the job, so nothing takes it for a constant.",
    )

    # Launcher and integrations
    start_timeout: float = knob(
        30.0,
        LAUNCHER,
        "Time for the processes of a job to start.",
        unit="s",
        flag="--start-timeout",
        minimum=0,
        exclusive=True,
    )
    term_grace_period: float = knob(
        30.0,
        LAUNCHER,
        "Time for the ranks to save their work when SIGTERM or SIGHUP ends the job, before SIGKILL.",
        unit="s",
        flag="--term-grace-period",
        minimum=0,
    )
    elastic_timeout: float = knob(
        600.0,
        LAUNCHER,
        "Elastic jobs: time to wait for enough slots at the start, and for enough ranks after a change.",
        unit="s",
        flag="--elastic-timeout",
        minimum=0,
        exclusive=True,
        file="elastic.timeout",
    )
    elastic_discovery_seconds: float = knob(
        1.0,
        LAUNCHER,
        "Elastic jobs: time between two calls of the discovery script.",
        unit="s",
        minimum=0,
        exclusive=True,
    )
    elastic_warm_join: bool = knob(
        True,
        LAUNCHER,
        "Elastic jobs: ranks that are there hear of new ones when these have reached hvd.init(), rather than "
        "when they are started.",
    )
    preemption_grace: float = knob(
        30.0,
        LAUNCHER,
        "Elastic jobs: time that a host which is taken away gets to leave in order. Set by horovodrun.",
        unit="s",
        minimum=0,
    )
    commit_dir: str | None = knob(
        None,
        LAUNCHER,
        "Elastic jobs: directory that all hosts share, where commits are kept for the case that nobody who "
        "has the state is left. Set by horovodrun's --commit-dir.",
    )
    commit_every: int = knob(
        1,
        LAUNCHER,
        "Elastic jobs: every so many commits one is kept there, but at most one a second.",
        minimum=1,
    )
    share_threads: bool = knob(
        True,
        LAUNCHER,
        "horovodrun tells the ranks of a host to compute with as many threads as there are processors for "
        "each, by OMP_NUM_THREADS, TF_NUM_INTRAOP_THREADS and NPROC (JAX's), unless one of these is set "
        "already. Not in elastic jobs, whose ranks come and go, nor through mpirun and jsrun.",
        switch="--share-threads",
    )
    env_exclude: str = knob(
        "CI_JOB_TOKEN,GH_TOKEN,GITHUB_TOKEN,GITLAB_TOKEN,NPM_TOKEN,PYPI_TOKEN,TWINE_PASSWORD,VAULT_TOKEN",
        LAUNCHER,
        "Variables that the ranks do not get from horovodrun: a comma list of names, in which * stands for "
        "anything. Replaces the default; `-` excludes nothing.",
        flag="--env-exclude",
    )


_WITHOUT = {row.name for row in fields(WithoutEffect)}
# Those that have an effect come first.
KNOBS: tuple[Knob, ...] = tuple(
    knob_of(row, row.name in _WITHOUT) for row in sorted(fields(Config), key=lambda row: row.name in _WITHOUT)
)


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """The variables that ask for what this engine does not have."""
    return [
        setting.env
        for setting in KNOBS
        if setting.no_effect
        and (text := environ.get(setting.env, "").strip())
        and setting.of_variable(text)[0] != setting.default
    ]


def read(environ: Mapping[str, str]) -> Config:
    """The settings in ``environ``. A variable that is missing or empty has its default; a bad value
    raises ValueError naming the variable, the value and what is allowed. If the original Horovod
    took it, or nothing depends on it, rank 0 warns."""
    values: dict[str, Any] = {}
    for setting in KNOBS:
        text = environ.get(setting.env, "").strip()
        if text:
            values[setting.name], note = setting.of_variable(text)
            if note and environ.get("HOROVOD_RANK", "0") == "0":
                warnings.warn(note, stacklevel=2)
    return Config(**values)
