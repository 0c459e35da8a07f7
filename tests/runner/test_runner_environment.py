"""Every flag and config-file key of horovodrun, by what the workers find in their environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runner_util import horovodrun

from horovod.common.config import KNOBS
from horovod.runner.cli.flags import FlagParser
from horovod.runner.launch import run_commandline
from horovod.runner.processors import THREADS, quota

MIB = 1024 * 1024

# Flags, which set the variable of the same name to the value that follows, or to 1, or 0 for a "no"; but for
# those below.
ON = """
--fusion-threshold-mb 32 --cycle-time-ms 3.5 --cache-capacity 2048 --streams-per-peer 4
--hierarchical-allreduce --hierarchical-allgather --torus-allreduce
--autotune --autotune-log-file tune.csv --autotune-warmup-samples 4 --autotune-steps-per-sample 5
--autotune-bayes-opt-max-samples 6 --autotune-gaussian-process-noise 0.3
--timeline-filename trace.json --timeline-mark-cycles
--no-stall-check --stall-check-warning-time-seconds 70 --stall-check-shutdown-time-seconds 80
--stall-stacks --mpi-threads-disable --num-nccl-streams 3 --thread-affinity 1,0 --gloo-timeout-seconds 44
--start-timeout 55 --term-grace-period 20 --share-threads --elastic-timeout 90 --env-exclude MY_*,OTHER
--log-level ERROR --log-without-timestamp --tcp --network-interfaces lo
"""
OFF = """
--no-hierarchical-allreduce --no-hierarchical-allgather --no-torus-allreduce
--timeline-filename trace.json --no-timeline-mark-cycles --stall-check --no-stall-stacks
--no-mpi-threads-disable --no-share-threads --log-with-timestamp --network-interface lo
"""
OTHERWISE = {
    "--fusion-threshold-mb": f"HOROVOD_FUSION_THRESHOLD={32 * MIB}",
    "--cycle-time-ms": "HOROVOD_CYCLE_TIME=3.5",
    "--autotune-log-file": "HOROVOD_AUTOTUNE_LOG=tune.csv",
    "--timeline-filename": "HOROVOD_TIMELINE=trace.json",
    "--stall-check": "HOROVOD_STALL_CHECK_DISABLE=0",
    "--no-stall-check": "HOROVOD_STALL_CHECK_DISABLE=1",
    "--stall-check-warning-time-seconds": "HOROVOD_STALL_CHECK_TIME_SECONDS=70.0",
    "--stall-check-shutdown-time-seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=80.0",
    "--gloo-timeout-seconds": "HOROVOD_GLOO_TIMEOUT_SECONDS=44.0",
    "--start-timeout": "HOROVOD_START_TIMEOUT=55.0",
    "--term-grace-period": "HOROVOD_TERM_GRACE_PERIOD=20.0",
    "--elastic-timeout": "HOROVOD_ELASTIC_TIMEOUT=90.0",
    "--log-level": "HOROVOD_LOG_LEVEL=error",
    "--log-without-timestamp": "HOROVOD_LOG_HIDE_TIME=1",
    "--log-with-timestamp": "HOROVOD_LOG_HIDE_TIME=0",
    "--tcp": "NCCL_IB_DISABLE=1",
    "--network-interfaces": "HOROVOD_GLOO_IFACE=lo",
    "--network-interface": "NCCL_SOCKET_IFNAME=lo",
}
DEPRECATED = [("--log-hide-timestamp", "1"), ("--no-log-hide-timestamp", "0")]

# Flags that change no variable; other tests show what they do.
OTHERS = """
-v --version -np --num-proc -cb --check-build --disable-cache --output-filename --verbose --config-file
-p --ssh-port -i --ssh-identity-file -H --hosts -hostfile --hostfile --gloo --mpi --jsrun --no-autotune
--mpi-args --binding-args -prefix-timestamp --prefix-output-with-timestamp
--min-np --min-num-proc --max-np --max-num-proc --slots-per-host --reset-limit --blacklist-cooldown-range
--host-discovery-script --failures-before-blacklist --preemption-grace --events-file --commit-dir
--doctor --jobs --top --stack-dump --timeline --dashboard --dashboard-address --report
--event-log --no-event-log
"""

FILE = """
controller: gloo
params:
  fusion_threshold_mb: 16
  cycle_time_ms: 2
  cache_capacity: 9
  streams_per_peer: 2
  hierarchical_allreduce: true
  hierarchical_allgather: false
  torus_allreduce: true
autotune:
  enabled: true
  log_file: tune.csv
  warmup_samples: 1
  steps_per_sample: 2
  bayes_opt_max_samples: 3
  gaussian_process_noise: 0.5
timeline: {filename: trace.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 61, shutdown_time_seconds: 62}
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 0
  gloo_timeout_seconds: 33
logging: {level: INFO, with_timestamp: false}
elastic: {timeout: 91}
"""
FROM_FILE = {
    "HOROVOD_ELASTIC_TIMEOUT": "91.0",
    "HOROVOD_FUSION_THRESHOLD": str(16 * MIB),
    "HOROVOD_CYCLE_TIME": "2.0",
    "HOROVOD_CACHE_CAPACITY": "9",
    "HOROVOD_STREAMS_PER_PEER": "2",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    "HOROVOD_TORUS_ALLREDUCE": "1",
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_LOG": "tune.csv",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "3",
    "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5",
    "HOROVOD_TIMELINE": "trace.json",
    "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    "HOROVOD_STALL_CHECK_DISABLE": "1",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "61.0",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "62.0",
    "HOROVOD_MPI_THREADS_DISABLE": "1",
    "HOROVOD_NUM_NCCL_STREAMS": "2",
    "HOROVOD_THREAD_AFFINITY": "0",
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "33.0",
    "HOROVOD_LOG_LEVEL": "info",
    "HOROVOD_LOG_HIDE_TIME": "1",
}


def variables(flags: str) -> dict[str, tuple[str, str]]:
    """What every worker has by each flag: name and value."""
    result = {}
    for flag, value in re.findall(r"(--\S+)(?:\s+([^-\s]\S*))?", flags):
        word = flag.removeprefix("--")
        name = f"HOROVOD_{word.removeprefix('no-').replace('-', '_').upper()}"
        usual = f"{name}={value or int(not word.startswith('no-'))}"
        name, _, value = OTHERWISE.get(flag, usual).partition("=")
        result[flag] = (name, value)
    return result


def environments(*argv: str, env: dict[str, str] | None = None) -> list[dict[str, str]]:
    """What two workers find."""
    result = horovodrun("-np", "2", *argv, "env", env=env)
    assert result.returncode == 0, result.stderr
    found: list[dict[str, str]] = [{}, {}]
    for line in result.stdout.splitlines():
        prefix, _, entry = line.partition("<stdout>:")
        name, _, value = entry.partition("=")
        if prefix in ("[0]", "[1]"):
            found[int(prefix[1])][name] = value
    return found


def test_no_flag_is_missed() -> None:
    tested = {*variables(ON), *variables(OFF)} | {flag for flag, _ in DEPRECATED}
    known = {"-n", "--dry-run", "--grace-period"}  # our own
    assert tested | set(OTHERS.split()) | known == set(FlagParser()._actions)
    assert {knob.env for knob in KNOBS if knob.key} == set(FROM_FILE)


@pytest.mark.parametrize("flags", [ON, OFF], ids=["on", "off"])
def test_flags(flags: str) -> None:
    for rank, env in enumerate(environments(*flags.split())):
        for flag, (name, value) in variables(flags).items():
            assert env.get(name) == value, (rank, flag)
        # And what is always there.
        assert env["HOROVOD_CONTROLLER"] == env["HOROVOD_CPU_OPERATIONS"] == "gloo"
        assert (env["HOROVOD_RANK"], env["HOROVOD_SIZE"]) == (str(rank), "2")
        assert (env["HOROVOD_LOCAL_RANK"], env["HOROVOD_LOCAL_SIZE"]) == (str(rank), "2")
        assert (env["HOROVOD_CROSS_RANK"], env["HOROVOD_CROSS_SIZE"]) == ("0", "1")
        assert env["HOROVOD_HOSTNAME"] == "localhost" and env["PYTHONUNBUFFERED"] == "1"
        assert env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
        assert int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]) > 0


def test_without_flags_nothing_is_touched() -> None:
    inherited = {"HOROVOD_CACHE_CAPACITY": "77", "HOROVOD_GLOO_IFACE": "eth7", "OLDPWD": "/", "MINE": "x"}
    for env in environments(env=inherited):
        assert env["HOROVOD_CACHE_CAPACITY"] == "77" and env["HOROVOD_GLOO_IFACE"] == "eth7"
        assert env["MINE"] == "x" and "OLDPWD" not in env
        set_here = {name for name, _ in variables(ON).values()} - {
            "HOROVOD_CACHE_CAPACITY",
            "HOROVOD_GLOO_IFACE",
        }
        assert not set_here & set(env)


def test_config_file(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text(FILE)
    for env in environments("--config-file", str(file), env={"HOROVOD_CACHE_CAPACITY": "77"}):
        assert {name: env.get(name) for name in FROM_FILE} == FROM_FILE
    # Flags beat it, wherever they stand, and it is not needed for the rest.
    flags = ["--cache-capacity", "5", "--config-file", str(file), "--no-autotune", "--stall-check"]
    for env in environments(*flags):
        assert env["HOROVOD_CACHE_CAPACITY"] == "5" and env["HOROVOD_STALL_CHECK_DISABLE"] == "0"
        assert env["HOROVOD_FUSION_THRESHOLD"] == str(16 * MIB)
        assert not any(name.startswith("HOROVOD_AUTOTUNE") for name in env)


def test_deprecated_flags() -> None:
    for flag, value in DEPRECATED:
        assert {env["HOROVOD_LOG_HIDE_TIME"] for env in environments(flag)} == {value}


BAD = [
    (["--fusion-threshold-mb", "-1"], "--fusion-threshold-mb='-1' is not valid: it must be an integer >= 0"),
    (["--cycle-time-ms", "-0.5"], "--cycle-time-ms='-0.5' is not valid: it must be a number >= 0"),
    (["--cache-capacity", "-2"], "--cache-capacity='-2' is not valid"),
    (["--autotune-warmup-samples", "-1"], "--autotune-warmup-samples='-1' is not valid"),
    (["--autotune-steps-per-sample", "1.5"], "--autotune-steps-per-sample='1.5' is not valid"),
    (["--autotune-bayes-opt-max-samples", "-1"], "--autotune-bayes-opt-max-samples='-1' is not valid"),
    (["--autotune-gaussian-process-noise", "1.1"], "it must be a number from 0 to 1"),
    (["--stall-check-warning-time-seconds", "-1"], "--stall-check-warning-time-seconds='-1' is not valid"),
    (["--stall-check-shutdown-time-seconds", "x"], "--stall-check-shutdown-time-seconds='x' is not valid"),
    (["--num-nccl-streams", "-1"], "--num-nccl-streams='-1' is not valid"),
    (["--thread-affinity", "a"], "--thread-affinity='a' is not valid: it must be a comma list of integers"),
    (["--gloo-timeout-seconds", "0"], "--gloo-timeout-seconds='0' is not valid: it must be a number > 0"),
    (["--start-timeout", "0"], "--start-timeout='0' is not valid: it must be a number > 0"),
    (["--log-level", "LOUD"], "it must be one of trace, debug, info, warning, error, fatal"),
    (["-i", "/no/such/key"], "-i /no/such/key: there is no such file"),
    (["-H", "localhost:x"], "host entry 'localhost:x' is not valid: it must be name:slots"),
    (["-H", "localhost:0"], "host entry 'localhost:0' has no slots: give at least 1"),
    (["-H", "localhost:1"], "2 processes were requested but the hosts have 1 slots"),
    (["--hostfile", "/no/such/hosts"], "No such file or directory: '/no/such/hosts'"),
    (["--config-file", "/no/such/conf"], "No such file or directory: '/no/such/conf'"),
]


@pytest.mark.parametrize(("argv", "text"), BAD, ids=[" ".join(argv) for argv, _ in BAD])
def test_bad_values(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_commandline(["-np", "2", *argv, "true"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("horovodrun: ") and text in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost slots=two\n", "line 1: 'localhost slots=two' is not valid: it must be 'name slots=N'"),
        ("# none\n\n", "names no host: write one per line, such as 'node1 slots=4'"),
        ("localhost slots=2\nlocalhost max_slots=4\n", "line 2: 'localhost max_slots=4' is not valid"),
        ("localhost slots=0\n", "line 1: 'localhost slots=0' has no slots: give at least 1"),
        ("localhost slots=1\n", "2 processes were requested but the hosts have 1 slots"),
        ("\udcff\n", "is not text in UTF-8"),
    ],
)
def test_bad_hostfiles(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert run_commandline(["-np", "2", "--hostfile", str(file), "true"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_some_variables_stay_behind() -> None:
    env = {"GITHUB_TOKEN": "x", "MY_PASSWORD": "x", "MY_OWN": "x", "HARMLESS": "x"}
    names = "sh", "-c", "env | cut -d= -f1 | grep -E '^(GITHUB_TOKEN|MY_.*|HARMLESS)$' | sort"
    everything = "".join(f"[0]<stdout>:{name}\n" for name in sorted(env))
    assert horovodrun("-np", "1", *names, env=env).stdout == everything.replace(
        "[0]<stdout>:GITHUB_TOKEN\n", ""
    )
    result = horovodrun("-np", "1", "--env-exclude", "MY_P*,GITHUB_TOKEN", *names, env=env)
    assert result.stdout == "[0]<stdout>:HARMLESS\n[0]<stdout>:MY_OWN\n"
    assert horovodrun("-np", "1", "--env-exclude", "-", *names, env=env).stdout == everything


def test_children_of_a_rank_do_not_inherit_the_job_key() -> None:
    code = (
        "import os, subprocess, horovod.numpy as hvd\n"
        "assert '_HOROVOD_SECRET_KEY' in os.environ\n"
        "for _ in range(2):\n"
        "    hvd.init(); hvd.barrier()\n"
        "    print('key' if b'SECRET_KEY=' in subprocess.check_output('env') else 'no key')\n"
        "    hvd.shutdown()\n"
    )
    result = horovodrun("-np", "2", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(":no key\n") == 4


def test_ranks_of_a_host_share_its_processors() -> None:
    def told(*argv: str, np: int = 2, **env: str) -> set[tuple[str, str]]:
        # Not those that this test was started with.
        clean = [
            "env",
            *(word for name in THREADS for word in ("-u", name)),
            *(f"{n}={v}" for n, v in env.items()),
        ]
        words = [*clean, sys.executable, "-m", "horovod.runner.launch", "-np", str(np), *argv, "env"]
        result = subprocess.run(words, capture_output=True, text=True, check=True)
        pairs = (line.partition("<stdout>:")[2].partition("=") for line in result.stdout.splitlines())
        return {(name, value) for name, _, value in pairs if name in THREADS}

    usable = min(len(os.sched_getaffinity(0)), quota(Path("/")))
    assert told() == {(name, str(max(1, int(usable / 2)))) for name in THREADS}
    assert told(np=1) == told("--no-share-threads") == told(HOROVOD_SHARE_THREADS="0") == set()
    assert told(OMP_NUM_THREADS="7") == {("OMP_NUM_THREADS", "7")}
    assert told("--host-discovery-script", "echo localhost:2") == set()


def test_frameworks_start_as_many_threads_as_they_are_told() -> None:
    program = Path(__file__).with_name("program_threads.py")
    clean = ["env", *(word for name in THREADS for word in ("-u", name))]
    words = [*clean, sys.executable, "-m", "horovod.runner.launch", "-np", "2"]
    started = []
    for flag in ("--share-threads", "--no-share-threads"):
        result = subprocess.run([*words, flag, sys.executable, str(program)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        line = next(line for line in result.stdout.splitlines() if line.startswith("[0]<stdout>:threads "))
        started.append([int(word) for word in line.split()[1:]])
    assert len(started[0]) == 3 and all(shared < all_ for shared, all_ in zip(*started, strict=True)), started
