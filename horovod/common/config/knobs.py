"""The table of the settings, and how they are read from the environment."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from horovod.common.config.compatibility import WithoutEffect
from horovod.common.config.knob import (
    FAILURE,
    IDENTITY,
    LAUNCHER,
    LOGGING,
    PERFORMANCE,
    STALL,
    TIMELINE,
    Knob,
    Value,
    knob,
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
        int,
        128 * MIB,
        "HOROVOD_FUSION_THRESHOLD",
        PERFORMANCE,
        "Most bytes of tensors that are fused into one operation; 0 switches fusion off. "
        "Flag and config file count in MiB.",
        unit="bytes",
        flags=("--fusion-threshold-mb",),
        section="params",
        key="fusion_threshold_mb",
        scale=MIB,
        minimum=0,
    )
    cache_capacity: int = knob(
        int,
        1024,
        "HOROVOD_CACHE_CAPACITY",
        PERFORMANCE,
        "Number of negotiated tensors that are remembered, so that the next step sends a number instead of a "
        "description; 0 remembers none.",
        flags=("--cache-capacity",),
        section="params",
        key="cache_capacity",
        minimum=0,
    )
    disable_group_fusion: bool = knob(
        bool,
        False,
        "HOROVOD_DISABLE_GROUP_FUSION",
        PERFORMANCE,
        "Keep explicit groups of tensors apart from other tensors instead of fusing them together.",
    )
    thread_affinity: tuple[int, ...] | None = knob(
        tuple,
        None,
        "HOROVOD_THREAD_AFFINITY",
        PERFORMANCE,
        "Cores for the engine threads, one per local rank in order.",
        flags=("--thread-affinity",),
        section="library_options",
        key="thread_affinity",
    )
    dynamic_process_sets: bool = knob(
        bool,
        False,
        "HOROVOD_DYNAMIC_PROCESS_SETS",
        PERFORMANCE,
        "Allow add_process_set() and remove_process_set() after init().",
    )
    transport: str = knob(
        str,
        "auto",
        "HOROVOD_TRANSPORT",
        PERFORMANCE,
        "How data travels: shared memory, TCP, or the better one of those that all ranks can use.",
        choices=("auto", "shm", "tcp"),
    )
    encryption: str = knob(
        str,
        "none",
        "HOROVOD_ENCRYPTION",
        PERFORMANCE,
        "data: tensors and objects that leave a process through TCP are encrypted and authenticated with "
        "AES-256-GCM of OpenSSL's libcrypto, which must be installed. The same on all ranks.",
        choices=("none", "data"),
    )
    topology: tuple[int, ...] | None = knob(
        tuple,
        None,
        "HOROVOD_TOPOLOGY",
        PERFORMANCE,
        "Numbers of ranks that are combined first, in rank order: 2,2,2 lets six ranks on one host give the "
        "same bits as on three hosts with two ranks each. Unset: the ranks of each host.",
        minimum=1,
    )

    # Timeline
    timeline: str | None = knob(
        str,
        None,
        "HOROVOD_TIMELINE",
        TIMELINE,
        "File for a trace of all operations in Chrome's JSON format, written by rank 0; "
        "DYNAMIC leaves it to start_timeline() and stop_timeline().",
        flags=("--timeline-filename",),
        section="timeline",
        key="filename",
    )
    timeline_mark_cycles: bool = knob(
        bool,
        False,
        "HOROVOD_TIMELINE_MARK_CYCLES",
        TIMELINE,
        "Mark each round of negotiation in the trace.",
        flags=("--timeline-mark-cycles",),
        off_flags=("--no-timeline-mark-cycles",),
        hidden_flags=("--no-timeline-mark-cycles",),
        section="timeline",
        key="mark_cycles",
        requires="timeline",
    )
    timeline_ranks: str = knob(
        str,
        "0",
        "HOROVOD_TIMELINE_RANKS",
        TIMELINE,
        "Whose operations are recorded: those of rank 0, or with `all` those of every rank, each in a file "
        "of its own beside HOROVOD_TIMELINE that `python -m horovod.timeline merge` reads.",
        choices=("0", "all"),
    )
    timeline_buffer: int = knob(
        int,
        8 * MIB,
        "HOROVOD_TIMELINE_BUFFER",
        TIMELINE,
        "What a rank keeps of the timeline until it is written. What does not fit is left out and counted.",
        unit="bytes",
        minimum=4096,
    )

    # Stall check
    stall_check_disable: bool = knob(
        bool,
        False,
        "HOROVOD_STALL_CHECK_DISABLE",
        STALL,
        "Switch off the warning about tensors that only some ranks have submitted. "
        "The config-file key says the opposite.",
        flags=("--no-stall-check",),
        off_flags=("--stall-check",),
        hidden_flags=("--stall-check",),
        section="stall_check",
        key="enabled",
        inverted=True,
    )
    stall_check_time_seconds: float = knob(
        float,
        60.0,
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        STALL,
        "Age of such a tensor at which rank 0 warns and names the missing ranks.",
        unit="s",
        flags=("--stall-check-warning-time-seconds",),
        section="stall_check",
        key="warning_time_seconds",
        minimum=0,
    )
    stall_shutdown_time_seconds: float = knob(
        float,
        0.0,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        STALL,
        "Age of such a tensor at which the job is ended; 0 means never.",
        unit="s",
        flags=("--stall-check-shutdown-time-seconds",),
        section="stall_check",
        key="shutdown_time_seconds",
        minimum=0,
    )

    stall_stacks: bool = knob(
        bool,
        True,
        "HOROVOD_STALL_STACKS",
        STALL,
        "Ask ranks that others wait for where their threads are, and say so in the warning.",
        flags=("--stall-stacks",),
        off_flags=("--no-stall-stacks",),
    )
    stack_signal: str = knob(
        str,
        "SIGRTMIN+9",
        "HOROVOD_STACK_SIGNAL",
        STALL,
        "Signal for that where Python can't answer, because a call of C keeps its lock: a name or a number. "
        "`none` installs no handler.",
    )

    # Logging
    log_level: str = knob(
        str,
        "warning",
        "HOROVOD_LOG_LEVEL",
        LOGGING,
        "Least severity that is logged.",
        flags=("--log-level",),
        section="logging",
        key="level",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        tolerant=True,  # programs set "warn", for example, and the original took that for the default
    )
    metrics_address: str | None = knob(
        str,
        None,
        "HOROVOD_METRICS_ADDRESS",
        LOGGING,
        "Address and port, as 127.0.0.1:9400, where rank 0 serves its metrics for Prometheus at /metrics, to "
        "those who have the token. For jobs that horovodrun's dashboard does not serve.",
    )
    log_hide_time: bool = knob(
        bool,
        False,
        "HOROVOD_LOG_HIDE_TIME",
        LOGGING,
        "Leave the time out of the engine's log lines. The config-file key says the opposite.",
        flags=("--log-without-timestamp", "--log-hide-timestamp"),
        off_flags=("--log-with-timestamp", "--no-log-hide-timestamp"),
        hidden_flags=("--log-with-timestamp",),
        deprecated_flags=("--log-hide-timestamp", "--no-log-hide-timestamp"),
        section="logging",
        key="with_timestamp",
        inverted=True,
    )

    # Failure detection
    peer_timeout_seconds: float = knob(
        float,
        3.0,
        "HOROVOD_PEER_TIMEOUT_SECONDS",
        FAILURE,
        "Silence after which another rank of the same host is given up. A rank that dies is noticed at "
        "once; this is for ranks that are stopped.",
        unit="s",
        minimum=0.2,
        exclusive=True,
    )
    host_timeout_seconds: float = knob(
        float,
        10.0,
        "HOROVOD_HOST_TIMEOUT_SECONDS",
        FAILURE,
        "Silence after which a rank of another host is given up: it is stopped or cut off. A network that "
        "fails for less does not end the job.",
        unit="s",
        minimum=0.2,
        exclusive=True,
    )
    gloo_timeout_seconds: float = knob(
        float,
        30.0,
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        FAILURE,
        "Time for all ranks to find each other in init().",
        unit="s",
        flags=("--gloo-timeout-seconds",),
        section="library_options",
        key="gloo_timeout_seconds",
        minimum=0,
        exclusive=True,
    )

    # Identity and backends
    controller: str | None = knob(
        str,
        None,
        "HOROVOD_CONTROLLER",
        IDENTITY,
        "mpi: MPI moves the data, as with HOROVOD_CPU_OPERATIONS. The ranks negotiate over the engine's own "
        "sockets either way.",
        choices=("gloo", "mpi"),
    )
    cpu_operations: str | None = knob(
        str,
        None,
        "HOROVOD_CPU_OPERATIONS",
        IDENTITY,
        "Who moves the data of CPU tensors. gloo stands for the engine's own transports, and so does ccl.",
        choices=("gloo", "mpi", "ccl"),
    )
    rank: int | None = knob(int, None, "HOROVOD_RANK", IDENTITY, "This process among all.", minimum=0)
    size: int | None = knob(int, None, "HOROVOD_SIZE", IDENTITY, "Number of processes.", minimum=1)
    local_rank: int | None = knob(
        int, None, "HOROVOD_LOCAL_RANK", IDENTITY, "This process among those of its host.", minimum=0
    )
    local_size: int | None = knob(
        int, None, "HOROVOD_LOCAL_SIZE", IDENTITY, "Number of processes on this host.", minimum=1
    )
    cross_rank: int | None = knob(
        int,
        None,
        "HOROVOD_CROSS_RANK",
        IDENTITY,
        "This host among those that have this local rank.",
        minimum=0,
    )
    cross_size: int | None = knob(
        int, None, "HOROVOD_CROSS_SIZE", IDENTITY, "Number of hosts that have this local rank.", minimum=1
    )
    hostname: str | None = knob(
        str, None, "HOROVOD_HOSTNAME", IDENTITY, "Name of this host as the launcher was given it."
    )
    rendezvous_addr: str | None = knob(
        str,
        None,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        IDENTITY,
        "Where the ranks meet: the launcher, or the host of rank 0.",
    )
    rendezvous_port: int | None = knob(
        int, None, "HOROVOD_GLOO_RENDEZVOUS_PORT", IDENTITY, "Port of the same.", minimum=1, maximum=65535
    )
    secret_key_file: str | None = knob(
        str,
        None,
        "HOROVOD_SECRET_KEY_FILE",
        IDENTITY,
        "File with 32 bytes or more that only you can read, the same on all hosts: the secret of jobs that "
        "horovodrun has not started and that find no other way to share one.",
    )
    elastic: bool = knob(
        bool,
        False,
        "HOROVOD_ELASTIC",
        IDENTITY,
        "The number of processes may change during the job, so nothing takes it for a constant.",
    )

    # Launcher and integrations
    start_timeout: float = knob(
        float,
        30.0,
        "HOROVOD_START_TIMEOUT",
        LAUNCHER,
        "Time for the processes of a job to start.",
        unit="s",
        flags=("--start-timeout",),
        minimum=0,
        exclusive=True,
    )
    term_grace_period: float = knob(
        float,
        30.0,
        "HOROVOD_TERM_GRACE_PERIOD",
        LAUNCHER,
        "Time for the ranks to save their work when SIGTERM or SIGHUP ends the job, before SIGKILL.",
        unit="s",
        flags=("--term-grace-period",),
        minimum=0,
    )
    elastic_timeout: float = knob(
        float,
        600.0,
        "HOROVOD_ELASTIC_TIMEOUT",
        LAUNCHER,
        "Elastic jobs: time to wait for enough slots at the start, and for enough ranks after a change.",
        unit="s",
        flags=("--elastic-timeout",),
        section="elastic",
        key="timeout",
        minimum=0,
        exclusive=True,
    )
    elastic_discovery_seconds: float = knob(
        float,
        1.0,
        "HOROVOD_ELASTIC_DISCOVERY_SECONDS",
        LAUNCHER,
        "Elastic jobs: time between two calls of the discovery script.",
        unit="s",
        minimum=0,
        exclusive=True,
    )
    elastic_warm_join: bool = knob(
        bool,
        True,
        "HOROVOD_ELASTIC_WARM_JOIN",
        LAUNCHER,
        "Elastic jobs: ranks that are there hear of new ones when these have reached hvd.init(), rather than "
        "when they are started.",
    )
    preemption_grace: float = knob(
        float,
        30.0,
        "HOROVOD_PREEMPTION_GRACE",
        LAUNCHER,
        "Elastic jobs: time that a host which is taken away gets to leave in order. Set by horovodrun.",
        unit="s",
        minimum=0,
    )
    commit_dir: str | None = knob(
        str,
        None,
        "HOROVOD_COMMIT_DIR",
        LAUNCHER,
        "Elastic jobs: directory that all hosts share, where commits are kept for the case that nobody who "
        "has the state is left. Set by horovodrun's --commit-dir.",
    )
    commit_every: int = knob(
        int,
        1,
        "HOROVOD_COMMIT_EVERY",
        LAUNCHER,
        "Elastic jobs: every so many commits one is kept there, but at most one a second.",
        minimum=1,
    )
    env_exclude: str = knob(
        str,
        "CI_JOB_TOKEN,GH_TOKEN,GITHUB_TOKEN,GITLAB_TOKEN,NPM_TOKEN,PYPI_TOKEN,TWINE_PASSWORD,VAULT_TOKEN",
        "HOROVOD_ENV_EXCLUDE",
        LAUNCHER,
        "Variables that the ranks do not get from horovodrun: a comma list of names, in which * stands for "
        "anything. Replaces the default; `-` excludes nothing.",
        flags=("--env-exclude",),
    )


def _knobs() -> Iterator[Knob]:
    """Those that have an effect come first."""
    without = {item.name for item in fields(WithoutEffect)}
    for item in sorted(fields(Config), key=lambda item: item.name in without):
        default = cast(Value, item.default)
        yield Knob(item.name, default=default, no_effect=item.name in without, **item.metadata["knob"])


KNOBS: tuple[Knob, ...] = tuple(_knobs())


def without_effect(environ: Mapping[str, str]) -> list[str]:
    """The variables that ask for what this engine does not have."""
    return [
        setting.env
        for setting in KNOBS
        if setting.no_effect
        and (text := environ.get(setting.env, "").strip())
        and setting.parse(text) != setting.default
    ]


def read(environ: Mapping[str, str]) -> Config:
    """The settings in ``environ``. A variable that is missing or empty has its default; a bad value
    raises ValueError naming the variable, the value and what is allowed. If the knob is tolerant,
    rank 0 warns."""
    values: dict[str, Any] = {}
    for setting in KNOBS:
        text = environ.get(setting.env, "").strip()
        if text:
            try:
                values[setting.name] = setting.parse(text)
            except ValueError as error:
                if not setting.tolerant:
                    raise
                if environ.get("HOROVOD_RANK", "0") == "0":
                    warnings.warn(f"{error}; {setting.text(setting.default)} is used", stacklevel=2)
    return Config(**values)
