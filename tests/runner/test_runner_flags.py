"""Flags, config file and command of horovodrun, without starting anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from horovod.common.config import KNOBS
from horovod.runner.cli import flags
from horovod.runner.cli import settings as cli_settings
from horovod.runner.cli.check_build import check_build
from horovod.runner.cli.config_file import read_config_file
from horovod.runner.launch import run_commandline
from horovod.runner.plan.command import CommandError, resolve
from horovod.runner.plan.environment import inherited, masked

PATH = "/usr/bin:/bin"


def settings(*argv: str, file: str = "", environ: dict[str, str] | None = None) -> dict[str, str]:
    args, _ = flags.FlagParser().parse(argv)
    from_file, _ = read_config_file(file, "conf.yaml")
    return cli_settings.variables(args, from_file, environ or {})


def test_parsing_stops_at_the_command() -> None:
    args, command = flags.FlagParser().parse(
        ["-np", "2", "python", "-m", "x", "-np", "3", "--log", "-pr", "--verbose"]
    )
    assert args.np == 2 and not args.verbose
    assert command == ["python", "-m", "x", "-np", "3", "--log", "-pr", "--verbose"]


@pytest.mark.parametrize(
    "argv",
    [["-np", "2"], ["-n", "2"], ["-n2"], ["-np=2"], ["--num-proc", "2"], ["--num-proc=2"], ["--num-p", "2"]],
)
def test_ways_to_say_two(argv: list[str]) -> None:
    args, command = flags.FlagParser().parse([*argv, "cmd"])
    assert args.np == 2 and command == ["cmd"]


def test_separator_and_pairs_of_values() -> None:
    args, command = flags.FlagParser().parse(
        ["--blacklist-cooldown-range", "1", "5", "--mpi-args=-x A", "--", "-odd"]
    )
    assert args.blacklist_cooldown_range == [1, 5]
    assert args.mpi_args == "-x A"
    assert command == ["-odd"]


@pytest.mark.parametrize(
    "argv",
    [
        ["-np", "0", "x"],
        ["-np", "x", "x"],
        ["--nonsense", "x"],
        ["-H", "a:1", "--hostfile", "f", "x"],
        ["--gloo", "--mpi"],
        ["--hierarchical-allreduce", "--no-hierarchical-allreduce", "x"],
        ["--log"],
    ],
)
def test_wrong_flags_exit_with_2(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        flags.FlagParser().parse(argv)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("flag", "text", "allowed"),
    [
        ("-np", "two", "an integer >= 1"),
        ("-np", "0", "an integer >= 1"),
        ("--slots-per-host", "1.5", "an integer >= 1"),
        ("--reset-limit", "many", "an integer >= 0"),
        ("--grace-period", "soon", "a number of seconds >= 0"),
        ("-p", "ssh", "a port between 1 and 65535"),
        ("-p", "70000", "a port between 1 and 65535"),
    ],
)
def test_a_wrong_number_is_told_with_its_flag_and_what_is_allowed(
    flag: str, text: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_commandline([flag, text, "x"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert f"argument {flag}" in error and f"{text} is not valid: it must be {allowed}\n" in error


def test_flags_become_variables() -> None:
    assert settings(
        "--fusion-threshold-mb", "32", "--cycle-time-ms", "3.5", "--no-stall-check", "--log-level", "DEBUG"
    ) == {
        "HOROVOD_FUSION_THRESHOLD": str(32 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "3.5",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "debug",
    }
    assert settings() == {}
    assert settings("--stall-check", "--log-with-timestamp", "--thread-affinity", "0,2") == {
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_LOG_HIDE_TIME": "0",
        "HOROVOD_THREAD_AFFINITY": "0,2",
    }


def test_dependent_settings_need_their_switch() -> None:
    assert settings("--autotune-warmup-samples", "5", "--timeline-mark-cycles") == {}
    assert settings("--no-autotune") == {}
    assert settings("--autotune", "--autotune-warmup-samples", "5") == {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
    }
    expected = {"HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    assert settings("--timeline-mark-cycles", environ={"HOROVOD_TIMELINE": "x"}) == expected


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--cycle-time-ms", "-1"), ("--cache-capacity", "x"), ("--autotune-gaussian-process-noise", "2")],
)
def test_bad_values_name_the_flag(flag: str, value: str) -> None:
    with pytest.raises(ValueError, match=flag):
        settings(f"{flag}={value}")


def test_deprecated_flags_warn() -> None:
    with pytest.warns(DeprecationWarning, match="--log-hide-timestamp"):
        assert settings("--log-hide-timestamp") == {"HOROVOD_LOG_HIDE_TIME": "1"}
    args, _ = flags.FlagParser().parse(["--network-interface", "a,b", "--network-interfaces", "b,c"])
    with pytest.warns(DeprecationWarning):
        assert cli_settings.interfaces(args) == "a,b,c"


FILE = """
controller: gloo
params: {fusion_threshold_mb: 16, cycle_time_ms: 5, hierarchical_allreduce: true}
timeline: {filename: t.json, mark_cycles: yes}
stall_check: {enabled: no, warning_time_seconds: 7}
library_options: {thread_affinity: [1, 2], num_nccl_streams: }
logging: {level: INFO, with_timestamp: false}
"""


def test_config_file() -> None:
    assert settings(file=FILE) == {
        "HOROVOD_FUSION_THRESHOLD": str(16 * 1024 * 1024),
        "HOROVOD_CYCLE_TIME": "5.0",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "7.0",
        "HOROVOD_THREAD_AFFINITY": "1,2",
        "HOROVOD_LOG_LEVEL": "info",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }


@pytest.mark.parametrize("word", ["mpi", "MPI", "Mpi"])
def test_controller_in_any_case(word: str) -> None:
    args, _ = flags.FlagParser().parse([])
    _, controller = read_config_file(f"controller: {word}", "conf.yaml")
    assert cli_settings.uses_mpirun(args, controller)


def test_flags_beat_the_config_file() -> None:
    result = settings("--fusion-threshold-mb", "1", "--no-hierarchical-allreduce", "--stall-check", file=FILE)
    assert result["HOROVOD_FUSION_THRESHOLD"] == str(1024 * 1024)
    assert result["HOROVOD_HIERARCHICAL_ALLREDUCE"] == "0"
    assert result["HOROVOD_STALL_CHECK_DISABLE"] == "0"
    assert result["HOROVOD_CYCLE_TIME"] == "5.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("controller: tcp", "must be gloo or mpi"),
        ("parms: {}", "unknown section 'parms'"),
        ("params: {fusion: 1}", "unknown key 'fusion'"),
        ("params: {cycle_time_ms: fast}", "conf.yaml: params: cycle_time_ms='fast'"),
        ("params: 3", "must contain"),
        ("- a", "must consist of sections"),
        ("a: [", "not valid YAML"),
    ],
)
def test_bad_config_file(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config_file(text, "conf.yaml")


def test_unknown_host(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_commandline(["-np", "2", "-H", "no-such-host.invalid:2", "true"]) == 1
    assert "the name is unknown" in capfd.readouterr().err


def test_settings_without_effect_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_commandline(["-np", "1", "--num-nccl-streams", "2", "--dry-run", "true"]) == 0
    assert "--num-nccl-streams has no effect" in capsys.readouterr().err


def test_what_needs_our_launcher_is_mentioned_with_mpirun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "mpirun"
    fake.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watching = ["--dashboard", "--dashboard-address", "127.0.0.1:0", "--report", "r.html", "--event-log", "e"]
    assert run_commandline(["--mpi", "-np", "1", *watching, "--timeline", "a b", "--dry-run", "true"]) == 0
    told = capsys.readouterr()
    assert "-x HOROVOD_TIMELINE_RANKS" in told.out
    for flag in watching[0], watching[1], watching[3], watching[5]:
        assert f"note: {flag} has no effect with mpirun\n" in told.err
    assert "join them with python -m horovod.timeline merge 'a b' -o 'a b'\n" in told.err
    for either in (["--mpi"], watching):
        assert run_commandline([*either, "-np", "1", "--dry-run", "true"]) == 0
        assert "note:" not in capsys.readouterr().err


def test_bad_inherited_variable_is_found_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "many")
    assert run_commandline(["-np", "1", "--dry-run", "true"]) == 2
    assert "HOROVOD_CACHE_CAPACITY='many'" in capsys.readouterr().err


def test_dry_run_shows_the_plan_but_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_commandline(["-np", "2", "--dry-run", "--cache-capacity", "7", "echo", "a b"]) == 0
    out = capsys.readouterr().out
    assert "echo 'a b'" in out
    assert "HOROVOD_CACHE_CAPACITY=7" in out
    assert "Rank 1: HOROVOD_HOSTNAME=localhost HOROVOD_RANK=1 HOROVOD_SIZE=2" in out
    assert "_HOROVOD_SECRET_KEY=<secret>" in out


@pytest.mark.parametrize("argv", [[], ["-np", "2"], ["true"]])
def test_missing_number_or_command(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_commandline(argv)
    assert caught.value.code == 2


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    import horovod

    for argv in (["--version"], ["-v"]):
        with pytest.raises(SystemExit) as caught:
            run_commandline(argv)
        assert caught.value.code == 0
        assert capsys.readouterr().out.strip() == horovod.__version__


def test_help_is_about_flags_that_do_something(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_commandline(["--help"])
    assert caught.value.code == 0
    explained, _, idle = capsys.readouterr().out.partition("without effect in this engine: ")
    for knob in (knob for knob in KNOBS if knob.flags):
        words = [f" {flag} " for flag in knob.flags[:1]]
        assert all((word in explained.replace("\n", " ")) != knob.no_effect for word in words), knob.name
        assert (knob.flags[0] in idle.replace(",", " ").split()) == knob.no_effect, knob.name
    assert all(flag in explained for flag in (*flags.ELASTIC_SWITCHES, *flags.ELASTIC_ONLY))


def test_check_build_layout() -> None:
    import horovod

    lines = check_build().splitlines()
    assert lines[0] == f"Horovod v{horovod.__version__}:"
    heads = [line for line in lines if line.startswith("Available")]
    assert heads == ["Available Frameworks:", "Available Controllers:", "Available Tensor Operations:"]
    names = [line[8:] for line in lines if line.startswith("    [")]
    assert names == ["TensorFlow", "PyTorch", "MXNet", "MPI", "Gloo", "NCCL", "DDL", "CCL", "MPI", "Gloo"]
    assert lines.count("    [X] Gloo") == 2


def test_check_build_imports_no_framework() -> None:
    code = (
        "import sys, horovod.runner.cli.check_build as c; c.check_build(); print('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_command_resolution(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "run.sh").write_text("true\n")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    here = str(tmp_path)
    assert resolve(["train.py", "-x"], here, PATH) == [sys.executable, "train.py", "-x"]
    assert resolve(["./train.py"], here, PATH) == [sys.executable, "./train.py"]
    assert resolve(["run.sh", "1"], here, PATH) == ["/bin/sh", "run.sh", "1"]
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    assert resolve(["./run.sh"], here, PATH) == [str(tmp_path / "run.sh")]
    assert resolve(["sh", "-c", "true"], here, PATH)[1:] == ["-c", "true"]
    for words, code, text in (
        (["nope"], 127, "not on PATH"),
        (["nope.py"], 127, "no such file"),
        (["./nope"], 127, "no such file"),
        (["tool"], 127, "did you mean ./tool"),
        (["./tool"], 126, "chmod"),
        ([here], 126, "directory"),
    ):
        with pytest.raises(CommandError, match=text) as caught:
            resolve(words, here, PATH)
        assert caught.value.exit_code == code


def test_inherited_environment() -> None:
    environ = {
        "A": "1",
        "OLDPWD": "x",
        "BASH_FUNC_f%%": "()\n",
        "CUDA_VISIBLE_DEVICES": "0",
        "_HOROVOD_SECRET_KEY": "k",
    }
    assert inherited(environ) == {"A": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert inherited(environ, remote=True) == {"A": "1"}
    assert "k" not in masked(environ).values()
