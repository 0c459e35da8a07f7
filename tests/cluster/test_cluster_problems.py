"""Hosts that cannot take part: one clear message for each, in time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import ClusterJob, horovodrun
from runner_util import wait_until
from util_paths import ROOT

PYTHON = sys.executable


def problem(result: subprocess.CompletedProcess[str], host: str) -> str:
    """The one message about a host."""
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith(f"horovodrun: host {host}: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def host2(hosts: Hosts) -> Iterator[Hosts]:
    """The test restarts host2's sshd."""
    hosts.stop_sshd(2)
    yield hosts
    hosts.stop_sshd(2)
    hosts.start_sshd(2)


def test_unknown_name_closed_port_and_dead_host(hosts: Hosts) -> None:
    # Three seconds after the first problem it is said who has not answered yet; it does not take longer.
    result = horovodrun(
        hosts, "-np", "4", "-H", "host1,nowhere.invalid,host3,host4", "--start-timeout", "200", "true"
    )
    assert "the name is unknown" in problem(result, "nowhere.invalid")
    # Nobody has this address, so it is either known to be down by now or silent.
    assert any(words in problem(result, "host4") for words in ("down or cannot be reached", "not answered"))
    for well in ("host1", "host3"):  # on a busy machine three seconds may be too short for them
        if f"host {well}: " in result.stderr:
            assert "it had not answered when another host failed" in problem(result, well)


def test_dead_host_alone(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "2", "-H", "host1,host4", "--start-timeout", "60", "true")
    assert "it is down or cannot be reached" in problem(result, "host4")


def test_host_behind_a_wall(hosts: Hosts) -> None:
    hosts.iptables(3, "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
    begin = time.monotonic()
    try:
        result = horovodrun(hosts, "-np", "2", "-H", "host1,host3", "--start-timeout", "3", "true")
    finally:
        hosts.mend(3)
    assert time.monotonic() - begin > 2.5
    text = problem(result, "host3")
    assert "no answer within 3 s" in text or "timed out" in text


def test_no_ssh_server(host2: Hosts) -> None:
    result = horovodrun(host2, "-np", "2", "-H", "host1,host2", "true")
    host2.start_sshd(2)
    assert "no ssh server answers" in problem(result, "host2") and "with -p" in result.stderr


def test_wrong_key(hosts: Hosts) -> None:
    key = hosts.directory / "other_key"
    authorized = hosts.directory / "ssh" / "authorized_keys"
    default = hosts.directory / "ssh" / "id_ed25519"
    hidden = default.rename(default.with_suffix(".hidden"))
    try:
        result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "-i", key, "true")
    finally:
        hidden.rename(default)
    assert authorized.exists()
    text = problem(result, "host2")
    assert "ssh was refused" in text and "Permission denied" in text and "authorized_keys" in text


def test_changed_host_key(hosts: Hosts) -> None:
    known = hosts.directory / "ssh" / "known_hosts"
    before = known.read_text() if known.exists() else ""
    other = (hosts.directory / "other_key.pub").read_text().split()
    known.write_text(f"host2 {other[0]} {other[1]}\n")
    try:
        result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "true")
    finally:
        known.write_text(before)
    assert "its host key is not the known one" in problem(result, "host2")
    assert "ssh-keygen -R host2" in result.stderr


@pytest.fixture
def configuration(hosts: Hosts) -> Iterator[Path]:
    """The user's ssh configuration, for the test to write; nothing is known about any host."""
    file, known = hosts.directory / "ssh" / "config", hosts.directory / "ssh" / "known_hosts"
    before = known.read_text() if known.exists() else ""
    known.unlink(missing_ok=True)
    yield file
    file.unlink()
    known.write_text(before)


def test_strict_checking_of_host_keys_stays_strict(hosts: Hosts, configuration: Path) -> None:
    configuration.write_text("StrictHostKeyChecking yes\n")
    result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "true")
    text = problem(result, "host2")
    assert "its host key is not known" in text and "StrictHostKeyChecking" in text


def test_command_of_the_configuration_does_not_disturb(hosts: Hosts, configuration: Path) -> None:
    configuration.write_text("RemoteCommand tmux attach\nRequestTTY yes\n")
    assert horovodrun(hosts, "-np", "2", "-H", "host1,host2", "true").returncode == 0
    assert (configuration.parent / "known_hosts").read_text()  # it has been accepted


def test_host_that_is_too_busy_is_asked_again(host2: Hosts) -> None:
    # One connection that does not authenticate is all that this sshd takes, and somebody has it.
    host2.start_sshd(2, startups="1:100:1")
    hold = (
        "import socket, time; sock = socket.create_connection(('192.0.2.2', 22))\n"
        "print(sock.recv(9), flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(host2.words(1, PYTHON, "-c", hold), stdout=subprocess.PIPE)
    assert holder.stdout is not None and b"SSH" in holder.stdout.readline()
    job = ClusterJob(host2, "-np", "2", "-H", "host1,host2", "echo", "well")
    log = host2.directory / "sshd2.log"
    wait_until(lambda: "drop connection" in log.read_text(), 60, "the server takes them all")
    holder.kill()
    holder.communicate()
    result = job.finish()
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("well") == 2


def test_package_missing(host2: Hosts, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    packages = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    host2.start_sshd(2, mounts=[(empty, ROOT / "horovod"), (empty, packages)])
    result = horovodrun(host2, "-np", "2", "-H", "host1,host2", "true")
    text = problem(result, "host2")
    assert f"horovod is not installed there for {PYTHON}" in text and "pip install horovod==" in text


def test_interpreter_missing(host2: Hosts, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    host2.start_sshd(2, mounts=[(empty, Path(PYTHON).parent)])
    result = horovodrun(host2, "-np", "2", "-H", "host1,host2", "true")
    assert f"it has no {PYTHON}" in problem(result, "host2")


def test_other_version(host2: Hosts, tmp_path: Path) -> None:
    package = tmp_path / "horovod"
    (tmp_path / "horovod").mkdir()
    for entry in (ROOT / "horovod").iterdir():
        if entry.name not in ("__init__.py", "__pycache__"):
            (package / entry.name).mkdir() if entry.is_dir() else (package / entry.name).touch()
    text = (ROOT / "horovod" / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace('__version__ = "', '__version__ = "0.1+'))
    mounts = [(package, ROOT / "horovod")]
    # The rest of the package is the same.
    subprocess.run(["cp", "-r", *map(str, (ROOT / "horovod").glob("[!_]*")), package], check=True)
    needed = [str(ROOT / "horovod" / name) for name in ("_bootstrap", "_net", "_absent.py")]
    subprocess.run(["cp", "-r", *needed, package], check=True)
    host2.start_sshd(2, mounts=mounts)
    result = horovodrun(host2, "-np", "2", "-H", "host1,host2", "true")
    text = problem(result, "host2")
    assert "it has horovod 0.1+" in text and "install the same version on all hosts" in text


def test_hosts_that_cannot_reach_each_other(hosts: Hosts) -> None:
    # ssh still works; nothing else comes through.
    for network in ("192.0.2.2", "198.51.100.2", "172.17.0.1"):
        hosts.iptables(3, "-A", "OUTPUT", "-d", network, "-p", "tcp", "--syn", "-j", "REJECT")
    hosts6 = ["ip", "netns", "exec", hosts.namespace(3), "ip6tables", "-w"]
    subprocess.run([*hosts6, "-A", "OUTPUT", "-d", "2001:db8::2", "-j", "REJECT"], check=True)
    try:
        result = horovodrun(hosts, "-np", "3", "-H", "host1,host2,host3", "--start-timeout", "60", "true")
    finally:
        hosts.mend(3)
        subprocess.run([*hosts6, "-F"], check=True)
    text = problem(result, "host2")
    assert "host3 cannot reach it (192.0.2.2:" in text and "firewall" in text


def test_launcher_that_cannot_be_reached(hosts: Hosts) -> None:
    hosts.iptables(1, "-A", "INPUT", "!", "-i", "lo", "-p", "tcp", "--syn", "-j", "REJECT")
    hosts6 = ["ip", "netns", "exec", hosts.namespace(1), "ip6tables", "-w"]
    words = ["INPUT", "!", "-i", "lo", "-p", "tcp", "--syn", "-j", "REJECT"]
    subprocess.run([*hosts6, "-A", *words], check=True)
    try:
        result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "--start-timeout", "60", "true")
    finally:
        hosts.mend(1)
        subprocess.run([*hosts6, "-F"], check=True)
    assert "it cannot reach the launcher (192.0.2.1:" in problem(result, "host2")


def test_interface_that_does_not_exist(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "--network-interfaces", "ib7", "true")
    assert result.returncode == 1
    assert "no interface named ib7 has an address; the interfaces are" in result.stderr
