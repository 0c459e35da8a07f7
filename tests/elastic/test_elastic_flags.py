"""The command line of elastic jobs: what makes one, what is refused, config file, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from horovod.runner.cli import elastic, elastic_switch, flags
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.launch import run_commandline

TWO = ["-np", "2", "-H", "localhost:1,127.0.0.1:1"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*TWO, "--max-np", "4"], "--max-np is for elastic jobs: give --min-np"),
        ([*TWO, "--reset-limit", "0"], "--reset-limit is for elastic jobs"),
        ([*TWO, "--min-np", "3"], "-np 2 is below --min-np 3"),
        ([*TWO, "--min-np", "1", "--max-np", "1"], "--max-np 1 is below -np 2"),
        (
            [*TWO, "--min-np", "1", "--blacklist-cooldown-range", "0", "5"],
            "0 5 is not valid: it must be MIN MAX",
        ),
        ([*TWO, "--min-np", "1", "--blacklist-cooldown-range", "1", "4000"], "MAX <= 3600"),
        ([*TWO, "--min-np", "1", "--blacklist-cooldown-range", "3", "2"], "MIN <= MAX"),
        ([*TWO, "--min-np", "1", "--mpi"], "not by mpirun or jsrun"),
        (["-np", "2", "-H", "localhost:2", "--min-np", "1"], "localhost alone could not survive a failure"),
        (["-np", "3", "-H", "localhost:1,127.0.0.1:1", "--min-np", "1"], "have 2 slots"),
    ],
)
def test_contradictions(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_commandline([*argv, "true"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value"), [("HOROVOD_TOPOLOGY", "1,1"), ("HOROVOD_CPU_OPERATIONS", "mpi")]
)
def test_what_elastic_jobs_can_not_have(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert run_commandline([*TWO, "--min-np", "1", "true"]) == 2
    assert variable in capsys.readouterr().err


def test_hosts_from_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_commandline([*TWO, "--host-discovery-script", "x", "true"])
    assert caught.value.code == 2 and "not allowed with" in capsys.readouterr().err


def test_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["-np", "2", "--min-np", "1", "--max-np", "4", "--host-discovery-script", "./hosts", "--dry-run"]
    assert run_commandline([*argv, "echo", "a b"]) == 0
    out = capsys.readouterr().out
    assert "what './hosts' says" in out and "echo 'a b'" in out
    assert "starts with 2 processes, goes on with 1, at most 4 processes" in out


def test_config_file(tmp_path: Path) -> None:
    """A flag beats it, as always; the timeout is a knob like others."""
    file = tmp_path / "job.yaml"
    file.write_text(
        "elastic:\n  min_np: 1\n  max_np: 8\n  slots_per_host: 2\n  timeout: 7\n  reset_limit: 3\n"
        "  blacklist_cooldown_range: [2, 9]\n  host_discovery_script: ./hosts --all\n"
    )
    args, command = flags.FlagParser().parse(
        ["-np", "2", "--max-np", "4", "--config-file", str(file), "true"]
    )
    elastic_switch.complete(args)
    assert elastic_switch.wanted(args)
    request = elastic.understand(args, command, {})
    assert request.limits == elastic.Limits(
        start=2, least=1, most=4, reset_limit=3, elastic_timeout=7.0, cooldown=(2, 9)
    )
    assert request.script is not None
    assert (request.script.discovery_script, request.script.slots) == ("./hosts --all", 2)


def test_bad_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    for text, message in (("min_np: none", "min_np"), ("most: 4", "unknown key 'most'")):
        file.write_text(f"elastic:\n  {text}\n")
        assert (
            run_commandline([*TWO, "--min-np", "1", "--config-file", str(file), "true"]) == 2 or "min" in text
        )
        if "most" in text:
            assert message in capsys.readouterr().err
    file.write_text("elastic:\n  min_np: none\n")
    assert run_commandline([*TWO, "--config-file", str(file), "true"]) == 2
    assert "elastic: min_np: none is not valid" in capsys.readouterr().err


def test_settings() -> None:
    """As tools build them, with positional arguments."""
    settings = ElasticSettings(HostDiscoveryScript("./hosts", 2), 1, 4, 60, None, (1, 2), num_proc=2)
    assert settings.elastic
    assert settings.flags() == [
        "--num-proc=2",
        "--min-num-proc=1",
        "--max-num-proc=4",
        "--elastic-timeout=60",
        "--host-discovery-script=./hosts",
        "--slots-per-host=2",
        "--blacklist-cooldown-range",
        "1",
        "2",
    ]
    assert "--hosts=a:1,b:2" in ElasticSettings(FixedHosts({"a": 1, "b": 2}), 1, None, None, 0).flags()

    class Other(HostDiscovery):
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            return {}

    with pytest.raises(ValueError, match="can't ask a Other"):
        ElasticSettings(Other(), 1, None, None, 0).flags()
