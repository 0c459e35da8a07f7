"""The pure parts of jobs over several hosts: who reaches whom, what ssh's failures mean, addresses."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from runner_util import wait_until

from horovod._net.addresses import is_local, own_addresses
from horovod.runner import ssh
from horovod.runner.cli import request
from horovod.runner.host_survey.address_choice import cover
from horovod.runner.host_survey.participant import SurveyRequest, show
from horovod.runner.host_survey.survey import HostSurvey, Stage
from horovod.runner.launch import run_commandline
from horovod.runner.launcher import agent_process
from horovod.runner.plan.environment import inherited, placed


def test_cover_takes_the_first_address_that_everybody_reaches() -> None:
    offered = ["10.0.0.1", "172.17.0.1", "192.0.2.1"]
    assert cover(offered, {"b": ["10.0.0.1", "192.0.2.1"], "c": ["10.0.0.1"]}) == (["10.0.0.1"], [])
    assert cover(offered, {"b": ["192.0.2.1"], "c": ["192.0.2.1", "10.0.0.1"]}) == (["192.0.2.1"], [])


def test_cover_takes_several_if_it_must() -> None:
    reached = {"b": ["x"], "c": ["y"], "d": ["y"]}
    assert cover(["x", "y"], reached) == (["y", "x"], [])


def test_cover_names_those_who_reach_nothing() -> None:
    assert cover(["x"], {"c": [], "b": [], "d": ["x"]}) == (["x"], ["b", "c"])
    assert cover(["x", "y"], {}) == (["x"], [])


def listening(address: str) -> dict[str, object]:
    return {"offered": [["eth0", address, 5000]], "launcher": ["10.0.0.9", 4000]}


def test_survey_of_two_hosts() -> None:
    survey = HostSurvey(["a", "b"])
    survey.listening("a", listening("10.0.0.1"))
    assert survey.stage is Stage.LISTEN and survey.waiting == {"b"}
    survey.listening("b", listening("10.0.0.2"))
    assert survey.stage is Stage.REACH
    assert survey.peers_of("a") == {"b": [("10.0.0.2", 5000)]}
    survey.reached("a", {"reached": {"b": ["10.0.0.2"]}, "problems": {}})
    survey.reached("b", {"reached": {"a": ["10.0.0.1"]}, "problems": {}})
    assert survey.stage is Stage.READY
    network = survey.network("b")
    assert (network.launcher, network.addresses, network.interface) == (
        ("10.0.0.9", 4000),
        ["10.0.0.2"],
        "eth0",
    )
    assert survey.launcher_addresses() == {"10.0.0.9"}
    env = placed({"A": "b", "NCCL_SOCKET_IFNAME": "mine"}, network)
    assert env["NCCL_SOCKET_IFNAME"] == "mine" and env["HOROVOD_GLOO_IFACE"] == "eth0"
    assert env["HOROVOD_ADDRESSES"] == "10.0.0.2" and env["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "4000"


def test_survey_collects_all_problems() -> None:
    survey = HostSurvey(["a", "b", "c"])
    survey.failed("a", "is down")
    survey.listening("b", {"problem": "no network"})
    assert survey.stage is Stage.LISTEN
    survey.give_up("no answer")
    assert survey.stage is Stage.FAILED
    assert survey.problems == {"a": "is down", "b": "no network", "c": "no answer"}


def test_survey_names_hosts_that_others_cannot_reach() -> None:
    survey = HostSurvey(["a", "b"])
    survey.listening("a", listening("10.0.0.1"))
    survey.listening("b", listening("10.0.0.2"))
    survey.reached("a", {"reached": {"b": []}, "problems": {"b": "10.0.0.2:5000: no answer"}})
    survey.reached("b", {"reached": {"a": ["10.0.0.1"]}, "problems": {}})
    assert survey.stage is Stage.FAILED
    assert list(survey.problems) == ["b"]
    assert "a cannot reach it (10.0.0.2:5000: no answer)" in survey.problems["b"]


def test_ssh_command() -> None:
    options = ssh.SshOptions(port=2222, identity_file="my key")
    words = ssh.command("node1", options, 2.5, python="/opt/my python/bin/python")
    assert words[0] == "ssh" and words[-3:-1] == ["--", "node1"]
    text = shlex.join(words)
    for part in ("BatchMode=yes", "PasswordAuthentication=no", "ConnectTimeout=3", "-p 2222", "-i 'my key'"):
        assert part in text
    assert "StrictHostKeyChecking" not in text
    # What the remote shell makes of the last word.
    remote = shlex.split(words[-1])
    assert remote[:5] == ["cd", "/", "&&", "exec", "/opt/my python/bin/python"]
    compile(remote[-1], "", "exec")


@pytest.mark.parametrize(
    ("code", "said", "meaning"),
    [
        (255, "ssh: connect to host a port 22: Connection refused", "no ssh server answers"),
        (255, "ssh: connect to host a port 22: No route to host", "down or cannot be reached"),
        (255, "ssh: connect to host a port 22: Connection timed out", "down or cannot be reached"),
        (255, "root@a: Permission denied (publickey).", "authorized_keys"),
        (255, "Host key verification failed.", "ssh-keygen -R a"),
        (255, "No ED25519 host key is known for a and you have requested strict checking.", "is not known"),
        (255, "ssh: Could not resolve hostname a: Name or service not known", "the name is unknown"),
        (1, "ModuleNotFoundError: No module named 'horovod'", "pip install horovod=="),
        (127, f"sh: 1: exec: {sys.executable}: not found", f"it has no {sys.executable}"),
        (255, "", "ssh failed (Warning: something)"),
        (3, "strange", "exit code 3 (strange)"),
    ],
)
def test_explanations(code: int, said: str, meaning: str) -> None:
    assert meaning in ssh.explain("a", code, ["Warning: something", said, ""])


def test_local_names() -> None:
    for name in ("localhost", "127.0.0.1", "127.0.0.7", "::1", socket.gethostname()):
        assert is_local(name), name
    for name in ("me@localhost", "192.0.2.55", "no-such-host.invalid", "0.0.0.0", "x" * 70):
        assert not is_local(name), name


def test_addresses() -> None:
    assert {entry.address for entry in own_addresses(["lo"])} >= {"127.0.0.1"}
    assert not any(entry.address.startswith(("127.", "fe80")) for entry in own_addresses())
    with pytest.raises(ValueError, match="no interface named nope has an address"):
        own_addresses(["nope"])


def test_visible_devices_and_ssh_stay_at_home() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1", "SSH_CONNECTION": "x", "A": "b", "_HOROVOD_SECRET_KEY": "k"}
    assert inherited(environ, remote=True) == {"A": "b"}
    assert inherited(environ) == {
        key: environ[key] for key in ("CUDA_VISIBLE_DEVICES", "SSH_CONNECTION", "A")
    }


def test_survey_request_survives_the_wire() -> None:
    request = SurveyRequest("a", "00", ["eth0"], [("::1", 5)], True, 2.0)
    assert SurveyRequest.from_json(request.to_json()) == request
    assert show(("::1", 5)) == "[::1]:5" and show(("1.2.3.4", 5)) == "1.2.3.4:5"


def test_only_so_many_connect_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This ssh connects, and says nothing.
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n[ $1 = -G ] && exit; : >{tmp_path}/began.$$; exec sleep 60\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    turns = agent_process.Turns(2)
    words = ssh.command("a", ssh.SshOptions(), 5, sys.executable)
    opened = [agent_process.start_remote("a", set(), words, turns, 1) for _ in range(4)]
    for agent in opened:
        turns.give(agent)

    def began() -> int:
        return len(list(tmp_path.glob("began.*")))

    try:
        wait_until(lambda: began() == 2, 60, "nobody connects")
        time.sleep(0.3)
        assert began() == 2
        turns.take_back(opened[0])
        turns.take_back(opened[0])  # counts once
        wait_until(lambda: began() == 3, 60, "the turn was not passed on")
        time.sleep(0.3)
        assert began() == 3
    finally:
        turns.close()
        for agent in opened:
            agent.process.kill()
            agent.process.wait()
            agent.close()


def test_names_are_resolved_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    everyone = threading.Barrier(20)

    def slow(name: str) -> bool:
        everyone.wait(20)  # an exception if somebody does not come
        return True

    monkeypatch.setattr(request, "is_local", slow)
    hosts = ",".join(f"host{number}" for number in range(20))
    assert run_commandline(["-np", "20", "-H", hosts, "--dry-run", "true"]) == 0
