"""Every run-time setting, in one typed table.

The fields of :class:`Config` are the table: each carries a :class:`Knob` with its environment variable,
flags, config-file key, allowed values and description. From it come the parsing of the environment
(:func:`read`), the tunable flags and config-file keys of ``horovodrun`` (:mod:`horovod.runner.flags`) and
``docs/knobs.md``::

    python -m horovod.common.config > docs/knobs.md

Imported by every ``import horovod.<framework>``: keep it light.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, cast

Value = bool | int | float | str | tuple[int, ...] | None

_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}

MIB = 1024 * 1024


class Knob(NamedTuple):
    """One setting: where it can be given, what is allowed, what it does.

    ``kind`` is bool, int, float, str or tuple (a comma list of integers, >= 0 unless
    ``minimum`` says otherwise). ``flags`` set a boolean and ``off_flags`` clear it. ``hidden_flags`` are left
    out of ``--help``, ``deprecated_flags`` also warn.
    ``scale`` is the factor from the flag's and config file's unit to the variable's. ``requires`` names the
    field without which ``horovodrun`` does not export this one. ``inverted``: the config-file key says the
    opposite of the variable. ``tolerant``: a value of the variable that is not allowed means the default.
    """

    name: str
    kind: type
    default: Value
    env: str
    group: str
    doc: str
    unit: str = ""
    flags: tuple[str, ...] = ()
    off_flags: tuple[str, ...] = ()
    hidden_flags: tuple[str, ...] = ()
    deprecated_flags: tuple[str, ...] = ()
    section: str = ""
    key: str = ""
    inverted: bool = False
    scale: int = 1
    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False
    choices: tuple[str, ...] = ()
    requires: str = ""
    no_effect: bool = False
    tolerant: bool = False

    def allowed(self) -> str:
        """The allowed values in words, for error messages and the reference page."""
        if self.kind is bool:
            return "1/0, true/false, yes/no or on/off"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is tuple:
            return f"a comma list of integers >= {self.minimum or 0:g}"
        if self.kind is str:
            return "text"
        noun = "an integer" if self.kind is int else "a number"
        if self.maximum is not None:
            return f"{noun} from {self.minimum:g} to {self.maximum:g}"
        if self.minimum is not None:
            return f"{noun} {'>' if self.exclusive else '>='} {self.minimum:g}"
        return noun

    def parse(self, text: str, source: str = "") -> Value:
        """The value that ``text`` stands for; ``source`` (default: the variable) is named in the error."""
        text = text.strip()
        try:
            return self._convert(text)
        except ValueError:
            raise ValueError(
                f"{source or self.env}={text!r} is not valid: it must be {self.allowed()}"
            ) from None

    def _convert(self, text: str) -> Value:
        if self.kind is bool:
            if text.lower() not in _BOOLEANS:
                raise ValueError
            return _BOOLEANS[text.lower()]
        if self.kind is tuple:
            smallest = int(self.minimum or 0)
            return tuple(_integer(part.strip(), minimum=smallest) for part in text.split(","))
        if self.kind is str:
            if self.choices:
                text = text.lower()
                if text not in self.choices:
                    raise ValueError
            return text
        number: int | float = _integer(text) if self.kind is int else float(text)
        # The comparisons are false for NaN, which therefore fails here too.
        if not -1e300 < number < 1e300:
            raise ValueError
        if self.minimum is not None and (
            number < self.minimum or (self.exclusive and number == self.minimum)
        ):
            raise ValueError
        if self.maximum is not None and number > self.maximum:
            raise ValueError
        return number

    def text(self, value: Value) -> str:
        """The text that :meth:`parse` turns into ``value``: what goes into a worker's environment."""
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return "" if value is None else str(value)


def _integer(text: str, minimum: int | None = None) -> int:
    # int() alone would accept "1_000" and digits of other scripts.
    if not text.lstrip("+-").isdigit() or not text.isascii():
        raise ValueError
    number = int(text)
    if minimum is not None and number < minimum:
        raise ValueError
    return number


_PERFORMANCE = "Performance"
_AUTOTUNE = "Autotuning"
_TIMELINE = "Timeline"
_STALL = "Stall check"
_LOGGING = "Logging"
_LIBRARY = "Libraries"
_FAILURE = "Failure detection"
_IDENTITY = "Identity and backends (normally set by a launcher)"
_LAUNCHER = "Launcher and integrations"


def _knob(kind: type, default: Value, env: str, group: str, doc: str, **rest: Any) -> Any:
    # Any: the annotation of the field is the type that users see.
    return field(
        default=default, metadata={"knob": {"kind": kind, "env": env, "group": group, "doc": doc, **rest}}
    )


# What dataclass() would generate for all the fields takes every rank longer than the rest of this module.
@dataclass(frozen=True, init=False, repr=False)
class Config:
    """The settings of one process. Durations are seconds and sizes bytes unless described otherwise."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)  # the others have their defaults from the class

    # Performance
    fusion_threshold: int = _knob(
        int,
        128 * MIB,
        "HOROVOD_FUSION_THRESHOLD",
        _PERFORMANCE,
        "Most bytes of tensors that are fused into one operation; 0 switches fusion off. "
        "Flag and config file count in MiB.",
        unit="bytes",
        flags=("--fusion-threshold-mb",),
        section="params",
        key="fusion_threshold_mb",
        scale=MIB,
        minimum=0,
    )
    cycle_time: float = _knob(
        float,
        1.0,
        "HOROVOD_CYCLE_TIME",
        _PERFORMANCE,
        "Period of the background loop elsewhere. This engine is event-driven and has no cycle.",
        unit="ms",
        flags=("--cycle-time-ms",),
        section="params",
        key="cycle_time_ms",
        minimum=0,
        no_effect=True,
    )
    cache_capacity: int = _knob(
        int,
        1024,
        "HOROVOD_CACHE_CAPACITY",
        _PERFORMANCE,
        "Number of negotiated tensors that are remembered, so that the next step sends a number instead of a "
        "description; 0 remembers none.",
        flags=("--cache-capacity",),
        section="params",
        key="cache_capacity",
        minimum=0,
    )
    disable_group_fusion: bool = _knob(
        bool,
        False,
        "HOROVOD_DISABLE_GROUP_FUSION",
        _PERFORMANCE,
        "Keep explicit groups of tensors apart from other tensors instead of fusing them together.",
    )
    thread_affinity: tuple[int, ...] | None = _knob(
        tuple,
        None,
        "HOROVOD_THREAD_AFFINITY",
        _PERFORMANCE,
        "Cores for the engine threads, one per local rank in order.",
        flags=("--thread-affinity",),
        section="library_options",
        key="thread_affinity",
    )
    dynamic_process_sets: bool = _knob(
        bool,
        False,
        "HOROVOD_DYNAMIC_PROCESS_SETS",
        _PERFORMANCE,
        "Allow add_process_set() and remove_process_set() after init().",
    )
    transport: str = _knob(
        str,
        "auto",
        "HOROVOD_TRANSPORT",
        _PERFORMANCE,
        "How data travels: shared memory, TCP, or the better one of those that all ranks can use.",
        choices=("auto", "shm", "tcp"),
    )
    encryption: str = _knob(
        str,
        "none",
        "HOROVOD_ENCRYPTION",
        _PERFORMANCE,
        "data: tensors and objects that leave a process through TCP are encrypted and authenticated with "
        "AES-256-GCM of OpenSSL's libcrypto, which must be installed. The same on all ranks.",
        choices=("none", "data"),
    )
    topology: tuple[int, ...] | None = _knob(
        tuple,
        None,
        "HOROVOD_TOPOLOGY",
        _PERFORMANCE,
        "Numbers of ranks that are combined first, in rank order: 2,2,2 lets six ranks on one host give the "
        "same bits as on three hosts with two ranks each. Unset: the ranks of each host.",
        minimum=1,
    )
    hierarchical_allreduce: bool = _knob(
        bool,
        False,
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
        _PERFORMANCE,
        "Reduce within each host before going across hosts.",
        flags=("--hierarchical-allreduce",),
        off_flags=("--no-hierarchical-allreduce",),
        section="params",
        key="hierarchical_allreduce",
        no_effect=True,
    )
    hierarchical_allgather: bool = _knob(
        bool,
        False,
        "HOROVOD_HIERARCHICAL_ALLGATHER",
        _PERFORMANCE,
        "Gather within each host before going across hosts.",
        flags=("--hierarchical-allgather",),
        off_flags=("--no-hierarchical-allgather",),
        section="params",
        key="hierarchical_allgather",
        no_effect=True,
    )
    torus_allreduce: bool = _knob(
        bool,
        False,
        "HOROVOD_TORUS_ALLREDUCE",
        _PERFORMANCE,
        "Two-dimensional variant of hierarchical allreduce for GPUs.",
        flags=("--torus-allreduce",),
        off_flags=("--no-torus-allreduce",),
        section="params",
        key="torus_allreduce",
        no_effect=True,
    )
    batch_d2d_memcopies: bool = _knob(
        bool,
        True,
        "HOROVOD_BATCH_D2D_MEMCOPIES",
        _PERFORMANCE,
        "Copy into the fusion buffer with one GPU kernel.",
        no_effect=True,
    )
    enable_async_completion: bool = _knob(
        bool,
        False,
        "HOROVOD_ENABLE_ASYNC_COMPLETION",
        _PERFORMANCE,
        "Complete GPU operations without host synchronisation.",
        no_effect=True,
    )
    enable_xla_ops: bool = _knob(
        bool,
        False,
        "HOROVOD_ENABLE_XLA_OPS",
        _PERFORMANCE,
        "Register GPU operations for XLA.",
        no_effect=True,
    )
    adasum_mpi_chunk_size: int = _knob(
        int,
        1 << 30,
        "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
        _PERFORMANCE,
        "Message size of Adasum over MPI.",
        unit="bytes",
        minimum=1,
        no_effect=True,
    )
    ccl_cache: bool = _knob(
        bool,
        False,
        "HOROVOD_CCL_CACHE",
        _PERFORMANCE,
        "Operation cache of oneCCL.",
        no_effect=True,
    )

    # Autotuning
    autotune: bool = _knob(
        bool,
        False,
        "HOROVOD_AUTOTUNE",
        _AUTOTUNE,
        "Search for good parameters during the first steps.",
        flags=("--autotune",),
        off_flags=("--no-autotune",),
        hidden_flags=("--no-autotune",),
        section="autotune",
        key="enabled",
        requires="autotune",
        no_effect=True,
    )
    autotune_log: str | None = _knob(
        str,
        None,
        "HOROVOD_AUTOTUNE_LOG",
        _AUTOTUNE,
        "CSV file for the search.",
        flags=("--autotune-log-file",),
        section="autotune",
        key="log_file",
        requires="autotune",
        no_effect=True,
    )
    autotune_warmup_samples: int = _knob(
        int,
        3,
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        _AUTOTUNE,
        "Samples thrown away first.",
        flags=("--autotune-warmup-samples",),
        section="autotune",
        key="warmup_samples",
        minimum=0,
        requires="autotune",
        no_effect=True,
    )
    autotune_steps_per_sample: int = _knob(
        int,
        10,
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        _AUTOTUNE,
        "Steps that make one sample.",
        flags=("--autotune-steps-per-sample",),
        section="autotune",
        key="steps_per_sample",
        minimum=0,
        requires="autotune",
        no_effect=True,
    )
    autotune_bayes_opt_max_samples: int = _knob(
        int,
        20,
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        _AUTOTUNE,
        "Most samples of the search.",
        flags=("--autotune-bayes-opt-max-samples",),
        section="autotune",
        key="bayes_opt_max_samples",
        minimum=0,
        requires="autotune",
        no_effect=True,
    )
    autotune_gaussian_process_noise: float = _knob(
        float,
        0.8,
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        _AUTOTUNE,
        "Regularisation of the search.",
        flags=("--autotune-gaussian-process-noise",),
        section="autotune",
        key="gaussian_process_noise",
        minimum=0,
        maximum=1,
        requires="autotune",
        no_effect=True,
    )

    # Timeline
    timeline: str | None = _knob(
        str,
        None,
        "HOROVOD_TIMELINE",
        _TIMELINE,
        "File for a trace of all operations in Chrome's JSON format, written by rank 0; "
        "DYNAMIC leaves it to start_timeline() and stop_timeline().",
        flags=("--timeline-filename",),
        section="timeline",
        key="filename",
    )
    timeline_mark_cycles: bool = _knob(
        bool,
        False,
        "HOROVOD_TIMELINE_MARK_CYCLES",
        _TIMELINE,
        "Mark each round of negotiation in the trace.",
        flags=("--timeline-mark-cycles",),
        off_flags=("--no-timeline-mark-cycles",),
        hidden_flags=("--no-timeline-mark-cycles",),
        section="timeline",
        key="mark_cycles",
        requires="timeline",
    )

    # Stall check
    stall_check_disable: bool = _knob(
        bool,
        False,
        "HOROVOD_STALL_CHECK_DISABLE",
        _STALL,
        "Switch off the warning about tensors that only some ranks have submitted. "
        "The config-file key says the opposite.",
        flags=("--no-stall-check",),
        off_flags=("--stall-check",),
        hidden_flags=("--stall-check",),
        section="stall_check",
        key="enabled",
        inverted=True,
    )
    stall_check_time_seconds: float = _knob(
        float,
        60.0,
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        _STALL,
        "Age of such a tensor at which rank 0 warns and names the missing ranks.",
        unit="s",
        flags=("--stall-check-warning-time-seconds",),
        section="stall_check",
        key="warning_time_seconds",
        minimum=0,
    )
    stall_shutdown_time_seconds: float = _knob(
        float,
        0.0,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        _STALL,
        "Age of such a tensor at which the job is ended; 0 means never.",
        unit="s",
        flags=("--stall-check-shutdown-time-seconds",),
        section="stall_check",
        key="shutdown_time_seconds",
        minimum=0,
    )

    # Logging
    log_level: str = _knob(
        str,
        "warning",
        "HOROVOD_LOG_LEVEL",
        _LOGGING,
        "Least severity that is logged.",
        flags=("--log-level",),
        section="logging",
        key="level",
        choices=("trace", "debug", "info", "warning", "error", "fatal"),
        tolerant=True,  # programs set "warn", for example, and the original took that for the default
    )
    log_hide_time: bool = _knob(
        bool,
        False,
        "HOROVOD_LOG_HIDE_TIME",
        _LOGGING,
        "Leave the time out of the engine's log lines. The config-file key says the opposite.",
        flags=("--log-without-timestamp", "--log-hide-timestamp"),
        off_flags=("--log-with-timestamp", "--no-log-hide-timestamp"),
        hidden_flags=("--log-with-timestamp",),
        deprecated_flags=("--log-hide-timestamp", "--no-log-hide-timestamp"),
        section="logging",
        key="with_timestamp",
        inverted=True,
    )
    disable_nvtx_ranges: bool = _knob(
        bool,
        False,
        "HOROVOD_DISABLE_NVTX_RANGES",
        _LOGGING,
        "No NVTX ranges for NVIDIA's profilers.",
        no_effect=True,
    )

    # Failure detection
    peer_timeout_seconds: float = _knob(
        float,
        3.0,
        "HOROVOD_PEER_TIMEOUT_SECONDS",
        _FAILURE,
        "Silence after which another rank is given up. A rank that dies is noticed at once; this is for "
        "ranks that are stopped or cut off.",
        unit="s",
        minimum=0.2,
        exclusive=True,
    )
    gloo_timeout_seconds: float = _knob(
        float,
        30.0,
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        _FAILURE,
        "Time for all ranks to find each other in init().",
        unit="s",
        flags=("--gloo-timeout-seconds",),
        section="library_options",
        key="gloo_timeout_seconds",
        minimum=0,
        exclusive=True,
    )

    # Libraries
    mpi_threads_disable: bool = _knob(
        bool,
        False,
        "HOROVOD_MPI_THREADS_DISABLE",
        _LIBRARY,
        "Ask MPI for a single thread.",
        flags=("--mpi-threads-disable",),
        off_flags=("--no-mpi-threads-disable",),
        hidden_flags=("--no-mpi-threads-disable",),
        section="library_options",
        key="mpi_threads_disable",
        no_effect=True,
    )
    num_nccl_streams: int = _knob(
        int,
        1,
        "HOROVOD_NUM_NCCL_STREAMS",
        _LIBRARY,
        "GPU streams used in turn.",
        flags=("--num-nccl-streams",),
        section="library_options",
        key="num_nccl_streams",
        minimum=0,
        no_effect=True,
    )

    # Identity and backends
    controller: str | None = _knob(
        str,
        None,
        "HOROVOD_CONTROLLER",
        _IDENTITY,
        "mpi: MPI moves the data, as with HOROVOD_CPU_OPERATIONS. The ranks negotiate over the engine's own "
        "sockets either way.",
        choices=("gloo", "mpi"),
    )
    cpu_operations: str | None = _knob(
        str,
        None,
        "HOROVOD_CPU_OPERATIONS",
        _IDENTITY,
        "Who moves the data of CPU tensors. gloo stands for the engine's own transports, and so does ccl.",
        choices=("gloo", "mpi", "ccl"),
    )
    rank: int | None = _knob(int, None, "HOROVOD_RANK", _IDENTITY, "This process among all.", minimum=0)
    size: int | None = _knob(int, None, "HOROVOD_SIZE", _IDENTITY, "Number of processes.", minimum=1)
    local_rank: int | None = _knob(
        int, None, "HOROVOD_LOCAL_RANK", _IDENTITY, "This process among those of its host.", minimum=0
    )
    local_size: int | None = _knob(
        int, None, "HOROVOD_LOCAL_SIZE", _IDENTITY, "Number of processes on this host.", minimum=1
    )
    cross_rank: int | None = _knob(
        int,
        None,
        "HOROVOD_CROSS_RANK",
        _IDENTITY,
        "This host among those that have this local rank.",
        minimum=0,
    )
    cross_size: int | None = _knob(
        int, None, "HOROVOD_CROSS_SIZE", _IDENTITY, "Number of hosts that have this local rank.", minimum=1
    )
    hostname: str | None = _knob(
        str, None, "HOROVOD_HOSTNAME", _IDENTITY, "Name of this host as the launcher was given it."
    )
    rendezvous_addr: str | None = _knob(
        str,
        None,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        _IDENTITY,
        "Where the ranks meet: the launcher, or the host of rank 0.",
    )
    rendezvous_port: int | None = _knob(
        int, None, "HOROVOD_GLOO_RENDEZVOUS_PORT", _IDENTITY, "Port of the same.", minimum=1, maximum=65535
    )
    secret_key_file: str | None = _knob(
        str,
        None,
        "HOROVOD_SECRET_KEY_FILE",
        _IDENTITY,
        "File with 32 bytes or more that only you can read, the same on all hosts: the secret of jobs that "
        "horovodrun has not started and that find no other way to share one.",
    )
    gloo_iface: str | None = _knob(
        str,
        None,
        "HOROVOD_GLOO_IFACE",
        _IDENTITY,
        "Network interface; the engine uses the one that leads to the rendezvous.",
        no_effect=True,
    )
    elastic: bool = _knob(
        bool,
        False,
        "HOROVOD_ELASTIC",
        _IDENTITY,
        "The number of processes may change during the job.",
        no_effect=True,
    )

    # Launcher and integrations
    start_timeout: float = _knob(
        float,
        30.0,
        "HOROVOD_START_TIMEOUT",
        _LAUNCHER,
        "Time for the processes of a job to start.",
        unit="s",
        flags=("--start-timeout",),
        minimum=0,
        exclusive=True,
    )
    term_grace_period: float = _knob(
        float,
        30.0,
        "HOROVOD_TERM_GRACE_PERIOD",
        _LAUNCHER,
        "Time for the ranks to save their work when SIGTERM or SIGHUP ends the job, before SIGKILL.",
        unit="s",
        flags=("--term-grace-period",),
        minimum=0,
    )
    env_exclude: str = _knob(
        str,
        "CI_JOB_TOKEN,GH_TOKEN,GITHUB_TOKEN,GITLAB_TOKEN,NPM_TOKEN,PYPI_TOKEN,TWINE_PASSWORD,VAULT_TOKEN",
        "HOROVOD_ENV_EXCLUDE",
        _LAUNCHER,
        "Variables that the ranks do not get from horovodrun: a comma list of names, in which * stands for "
        "anything. Replaces the default; `-` excludes nothing.",
        flags=("--env-exclude",),
    )
    elastic_timeout: float = _knob(
        float,
        600.0,
        "HOROVOD_ELASTIC_TIMEOUT",
        _LAUNCHER,
        "Time to wait for enough slots after a change of hosts.",
        unit="s",
        minimum=0,
        exclusive=True,
        no_effect=True,
    )
    spark_start_timeout: float = _knob(
        float,
        600.0,
        "HOROVOD_SPARK_START_TIMEOUT",
        _LAUNCHER,
        "Time for Spark tasks to start.",
        unit="s",
        minimum=0,
        exclusive=True,
        no_effect=True,
    )
    spark_pythonpath: str | None = _knob(
        str, None, "HOROVOD_SPARK_PYTHONPATH", _LAUNCHER, "PYTHONPATH of Spark's workers.", no_effect=True
    )
    spark_work_dir: str | None = _knob(
        str, None, "HOROVOD_SPARK_WORK_DIR", _LAUNCHER, "Directory of Spark's workers.", no_effect=True
    )
    spark_use_local_rank_gpu_index: bool = _knob(
        bool,
        False,
        "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
        _LAUNCHER,
        "Choose the GPU by local rank instead of Spark's assignment.",
        no_effect=True,
    )


KNOBS: tuple[Knob, ...] = tuple(
    Knob(name=item.name, default=cast(Value, item.default), **item.metadata["knob"])
    for item in fields(Config)
)


def read(environ: Mapping[str, str]) -> Config:
    """The settings in ``environ``. A variable that is missing or empty has its default; a bad value raises
    ValueError naming the variable, the value and what is allowed. If the knob is tolerant, rank 0 warns."""
    values: dict[str, Any] = {}
    for knob in KNOBS:
        text = environ.get(knob.env, "").strip()
        if text:
            try:
                values[knob.name] = knob.parse(text)
            except ValueError as error:
                if not knob.tolerant:
                    raise
                if environ.get("HOROVOD_RANK", "0") == "0":
                    warnings.warn(f"{error}; {knob.text(knob.default)} is used", stacklevel=2)
    return Config(**values)


def reference() -> str:
    """The reference page, in Markdown."""
    lines = [
        "# Settings",
        "",
        "<!-- Generated: python -m horovod.common.config > docs/knobs.md -->",
        "",
        "Each setting is an environment variable of the worker processes, read in `hvd.init()`.",
        "`horovodrun` sets the variable from a flag or from a key of its config file (`section: key`).",
        "A flag beats the config file, the config file beats an inherited variable.",
        "A value that is not allowed is an error; in `HOROVOD_LOG_LEVEL`, if it was not set by a flag or the",
        "config file, it means `warning`, and rank 0 says so.",
        "Settings marked *no effect* are accepted for compatibility and do nothing in this engine.",
    ]
    for group in dict.fromkeys(knob.group for knob in KNOBS):
        lines += ["", f"## {group}", "", "| Variable | Default | Allowed | Flags | Config file | Meaning |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        lines += [_row(knob) for knob in KNOBS if knob.group == group]
    lines += [
        "",
        "`_HOROVOD_SECRET_KEY` carries the key of the job from the launcher to its workers. It is not a",
        "setting: do not set, print or pass it on.",
    ]
    return "\n".join(lines) + "\n"


def _row(knob: Knob) -> str:
    default = "unset" if knob.default is None else f"`{knob.text(knob.default)}`"
    if knob.unit and knob.default is not None:
        default += f" {knob.unit}"
    shown = [flag for flag in (*knob.flags, *knob.off_flags) if flag not in knob.deprecated_flags]
    key = f"`{knob.section}: {knob.key}`" if knob.key else ""
    doc = knob.doc + (" *No effect.*" if knob.no_effect else "")
    flags = ", ".join(f"`{flag}`" for flag in shown)
    return f"| `{knob.env}` | {default} | {knob.allowed()} | {flags} | {key} | {doc} |"


if __name__ == "__main__":
    print(reference(), end="")
