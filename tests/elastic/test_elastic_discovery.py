"""Discovery of hosts: what a script may print, and what happens when it fails."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_util import ENOUGH, Launcher, wait_until
from util_paths import ROOT

from horovod.runner.elastic import discovery
from horovod.runner.elastic.discovery import (
    Complaints,
    FixedHosts,
    HostDiscovery,
    HostDiscoveryScript,
    Polling,
    ScriptCall,
)
from horovod.runner.elastic.keeper import Keeper
from horovod.runner.plan.hosts import HostInfo, parse_discovered


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("\n \n# nobody\n", []),
        ("b:2\na\n", [("b", 2), ("a", 3)]),
        ("  a:1  # the first\n", [("a", 1)]),
        ("a slots=4\n", [("a", 4)]),
        ("a:0\n", [("a", 0)]),
        ("[fe80::1]:2\nfe80::2 slots=1\n", [("fe80::1", 2), ("fe80::2", 1)]),
        ("user@a:2\n", [("user@a", 2)]),
        ("a:1\nb:1\na:2\n", [("a", 2), ("b", 1)]),
    ],
)
def test_lines(text: str, hosts: list[tuple[str, int]]) -> None:
    found = parse_discovered(text, 3, "script")
    assert [(host.hostname, host.slots) for host in found] == hosts


@pytest.mark.parametrize("text", ["a:1\nwhat is this\n", "a:-1\n", "a:x\n", "-oProxyCommand=x\n", "a b\n"])
def test_half_an_answer_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="neither 'host' nor 'host:slots'"):
        parse_discovered(text, 1, "script")


def test_a_wrong_number_is_not_taken() -> None:
    with pytest.raises(ValueError, match="more than 10000 slots"):
        parse_discovered("a:20000000\n", 1, "script")


def test_script_with_arguments(tmp_path: Path) -> None:
    script = HostDiscoveryScript("printf 'a:%s\\nb\\n' 4", 2)
    assert script.find_available_hosts_and_slots() == {"a": 4, "b": 2}
    assert isinstance(script, HostDiscovery)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo why >&2; exit 3", r"(?s)Failed to execute discovery script: .* Exit code: 3.*why"),
        ("/no/such/script", r"Exit code: 127"),
        ("echo a b", r"neither 'host' nor"),
    ],
)
def test_script_fails(command: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        HostDiscoveryScript(command).find_available_hosts_and_slots()


def test_script_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, with what it has started."""
    monkeypatch.setattr(discovery, "LIMIT_SECONDS", 0.5)
    child = tmp_path / "child"
    with pytest.raises(RuntimeError, match=r"longer than 0\.5 s"):
        HostDiscoveryScript(f"sleep 600 & echo $! > {child}; wait").find_available_hosts_and_slots()
    deadline = time.monotonic() + 10
    while _alive(int(child.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_something_in_the_background_is_not_waited_for() -> None:
    begin = time.monotonic()
    assert HostDiscoveryScript("sleep 20 & echo a").find_available_hosts_and_slots() == {"a": 1}
    assert time.monotonic() < begin + 15


def test_polling_does_not_wait_for_something_in_the_background() -> None:
    """Which holds the script's pipes, so that nothing there tells of its end."""
    polling = Polling(HostDiscoveryScript("sleep 20 & echo a; sleep 0.5"), 5.0)
    polling.turn(time.monotonic())
    begin = time.monotonic()
    answer = None
    while answer is None:
        poll = select.poll()
        for descriptor in polling.descriptors:
            poll.register(descriptor, select.POLLIN)
        assert polling.due is not None
        poll.poll(max(0.0, polling.due - time.monotonic()) * 1000 + 1)
        answer = polling.turn(time.monotonic())
    assert answer == [HostInfo("a", 1)] and time.monotonic() < begin + 15


def test_an_answer_that_is_seen_late_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LIMIT_SECONDS", 0.5)
    call = ScriptCall("echo a", 1)
    time.sleep(1.0)
    call.step(time.monotonic())
    assert call.result() == [HostInfo("a", 1)]


ADOPTER = """
import time
from horovod.runner.elastic.discovery import HostDiscoveryScript, Polling
from horovod.runner.processes import become_subreaper
become_subreaper()
polling = Polling(HostDiscoveryScript("(sleep 0.3 &) ; echo a"), 0.05)
deadline, answers = time.monotonic() + 20, 0
while answers < 5 or len(open("/proc/thread-self/children").read().split()) > 1:  # the keeper stays
    answers += polling.turn(time.monotonic()) is not None
    if answers == 5:
        polling._next = None  # no more calls
    assert time.monotonic() < deadline
    time.sleep(0.01)
polling.close()
assert not open("/proc/thread-self/children").read()
"""


def test_what_scripts_leave_is_reaped() -> None:
    """By the launcher, which is the new parent of what they leave."""
    subprocess.run([sys.executable, "-c", ADOPTER], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


# Leaves something behind at first, and takes long the second time.
SLOW = """#!/bin/sh
echo localhost:1
if mkdir {directory}/left 2> /dev/null; then
    sleep 1000 > /dev/null 2>&1 &
else
    mkdir {directory}/busy
    sleep 1000
fi
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_scripts_end_with_the_launcher(tmp_path: Path, number: int) -> None:
    script = tmp_path / "discover.sh"
    script.write_text(SLOW.format(directory=tmp_path))
    script.chmod(0o755)
    flags = ["-np", "1", "--min-np", "1", "--host-discovery-script", str(script)]
    launcher = Launcher(*flags, "sleep", "1000")
    try:
        wait_until((tmp_path / "busy").exists, ENOUGH, "the script is not called a second time")
        launcher.process.send_signal(number)
        wait_until(lambda: not launcher.family(), ENOUGH, "processes are left")
    finally:
        launcher.destroy()


def test_a_script_does_not_run_if_the_launcher_ends_before_it_is_known(tmp_path: Path) -> None:
    program = "\n".join(
        [
            "import os",
            "from horovod.runner.elastic.discovery import ScriptCall",
            f"ScriptCall('touch {tmp_path}/ran', 1, lambda group: print(group, flush=True) or os._exit(0))",
        ]
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    group = int(subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE).stdout)
    wait_until(lambda: not _alive(group), ENOUGH, "the script waits")
    assert not (tmp_path / "ran").exists()


def test_a_keeper_that_was_killed_is_replaced() -> None:
    keeper = Keeper()
    sleepers = [subprocess.Popen(["sleep", "1000"], process_group=0) for _ in range(2)]
    keeper.tell({sleepers[0].pid})
    assert keeper._process is not None
    keeper._process.kill()
    keeper._process.wait()
    keeper.tell({each.pid for each in sleepers})
    keeper.close()
    for each in sleepers:
        assert each.wait(20) == -signal.SIGKILL


def test_polling(tmp_path: Path) -> None:
    """One call at a time, again after a pause, and errors are answers, too."""
    hosts = tmp_path / "hosts"
    hosts.write_text("a:1\n")
    polling = Polling(HostDiscoveryScript(f"cat {hosts}"), 0.05)
    assert _answer(polling) == [HostInfo("a", 1)]
    hosts.write_text("a:1\nb:2\n")
    assert polling.turn(0.0) is None, "not before its time"
    assert _answer(polling) == [HostInfo("a", 1), HostInfo("b", 2)]
    hosts.unlink()
    assert isinstance(_answer(polling), RuntimeError)
    polling.close()


def test_no_descriptors_are_left(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        call = ScriptCall("echo a", 1)
        while not call.ended:
            time.sleep(0.01)
            call.step(time.monotonic())
    assert len(os.listdir("/proc/self/fd")) == before


def test_complaints() -> None:
    complaints = Complaints()
    assert [complaints.failed(now) for now in (1, 2, 30, 61.5, 62)] == [True, False, False, True, False]
    complaints.worked()
    assert complaints.failed(63)


def test_fixed_hosts() -> None:
    fixed = FixedHosts({"a": 1})
    assert fixed.find_available_hosts_and_slots() == {"a": 1}
    fixed.set({"b": 2})
    assert fixed.find_available_hosts_and_slots() == {"b": 2}


def _answer(polling: Polling) -> object:
    deadline = time.monotonic() + 30
    while (found := polling.turn(time.monotonic())) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
