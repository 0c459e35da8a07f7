"""Jobs over several hosts that go well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_hosts import Hosts
from cluster_job import RANK, ClusterJob, horovodrun
from util_paths import ROOT

PYTHON = sys.executable


def test_three_hosts(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "6", "-H", "host1:2,host2:2,host3:2", PYTHON, RANK, "sum")
    assert result.returncode == 0
    assert result.stderr == ""
    for rank in range(6):
        host = rank // 2 + 1
        place = f"{rank}/6 {rank % 2}/2 {rank // 2}/3 on host{host} host{host} 192.0.2.{host}"
        assert f"[{rank}]<stdout>:ok {place}\n" in result.stdout


@pytest.mark.parametrize(("transport", "alone"), [("tcp", "host1:4"), ("auto", "host1:2,localhost:2")])
def test_same_bits_as_on_one_host(hosts: Hosts, transport: str, alone: str) -> None:
    digests = set()
    for where in ("host1:2,host2:2", alone):
        env = {"HOROVOD_TRANSPORT": transport}
        result = horovodrun(hosts, "-np", "4", "-H", where, PYTHON, RANK, "sum", env=env)
        assert result.returncode == 0
        digests |= set(re.findall(r"digest (\w+)", result.stdout))
    assert len(digests) == 1


def test_hosts_without_slots_and_a_script_without_python(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-n", "2", "-H", "host1,host2", RANK, "sum")
    assert result.returncode == 0
    assert "ok 0/2 0/1 0/2 on host1" in result.stdout and "ok 1/2 0/1 1/2 on host2" in result.stdout


def test_hostfile_as_the_documents_write_it(hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("192.0.2.2 slots=1\n   192.0.2.3 slots=1\n   localhost slots=2\n")
    result = horovodrun(
        hosts, "-np", "4", "--hostfile", file, "sh", "-c", "echo $HOROVOD_RANK on $(hostname)"
    )
    assert result.returncode == 0
    found = sorted(line.partition(":")[2] for line in result.stdout.splitlines())
    assert found == ["0 on host2", "1 on host3", "2 on host1", "3 on host1"]


def test_launcher_that_takes_no_part(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "4", "-H", "host2:2,host3:2", PYTHON, RANK, "sum")
    assert result.returncode == 0 and result.stdout.count("ok ") == 4


def test_one_other_host_uses_shared_memory(hosts: Hosts) -> None:
    code = "import horovod.numpy as hvd, os; hvd.init(); print('size', hvd.size(), hvd.local_size())"
    result = horovodrun(hosts, "-np", "2", "-H", "host3:2", PYTHON, "-c", code)
    assert result.returncode == 0 and result.stdout.count("size 2 2") == 2


def test_ipv6(hosts: Hosts) -> None:
    result = horovodrun(hosts, "-np", "2", "-H", "[2001:db8::1]:1,six2:1", PYTHON, RANK, "sum")
    assert result.returncode == 0
    assert "on host2 six2 2001:db8::2" in result.stdout


def test_ipv6_alone(hosts: Hosts) -> None:
    hosts.switch_ipv4(False)
    try:
        result = horovodrun(hosts, "-np", "4", "-H", "six1:2,six2:2", PYTHON, RANK, "sum")
    finally:
        hosts.switch_ipv4(True)
    assert result.returncode == 0 and result.stdout.count("ok ") == 4
    assert "on host2 six2 2001:db8::2\n" in result.stdout


def test_several_interfaces(hosts: Hosts) -> None:
    script = "echo $HOROVOD_ADDRESSES $HOROVOD_GLOO_IFACE $NCCL_SOCKET_IFNAME"
    flags = ["-np", "2", "-H", "host1,host2", "--network-interface", "eth1", "--network-interface", "eth0"]
    result = horovodrun(hosts, *flags, "sh", "-c", script)
    assert result.returncode == 0
    # One of a host's addresses is enough, on either network, as all reach both.
    for rank in (0, 1):
        address = rf"(192\.0\.2|198\.51\.100)\.{rank + 1}"
        assert re.search(rf"\[{rank}\]<stdout>:{address} eth1 eth1,eth0\n", result.stdout)


def test_chosen_interfaces(hosts: Hosts) -> None:
    script = "echo $HOROVOD_ADDRESSES $HOROVOD_GLOO_RENDEZVOUS_ADDR $HOROVOD_GLOO_IFACE $NCCL_SOCKET_IFNAME"
    flags = ["-np", "2", "-H", "host1,host2", "--network-interfaces", "eth1"]
    result = horovodrun(hosts, *flags, "sh", "-c", script)
    assert result.returncode == 0
    found = sorted(line.partition(":")[2] for line in result.stdout.splitlines())
    assert found == [f"198.51.100.{host} 198.51.100.1 eth1 eth1" for host in (1, 2)]


def test_network_that_only_some_reach(hosts: Hosts) -> None:
    # host3's first address is closed to host2, so another one is used, perhaps besides, and vice versa.
    hosts.iptables(2, "-A", "OUTPUT", "-d", "192.0.2.3", "-j", "REJECT")
    try:
        result = horovodrun(hosts, "-np", "3", "-H", "host1,host2,host3", PYTHON, RANK, "sum")
    finally:
        hosts.mend(2)
    assert result.returncode == 0
    for host in (2, 3):
        assert re.search(rf"on host{host} host{host} (192.0.2.{host},)?198.51.100.{host}\n", result.stdout)
    assert "on host1 host1 192.0.2.1\n" in result.stdout


def test_environment_directory_and_secrets(hosts: Hosts, tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps([os.getcwd(), dict(os.environ)]), flush=True); input()"
    code = code.replace("input()", "import time; time.sleep(60)")
    job = ClusterJob(
        hosts,
        *("-np", "2", "-H", "host1,host2", "--cycle-time-ms", "4", PYTHON, "-c", code),
        env={"MINE": "wert ü\n2", "CUDA_VISIBLE_DEVICES": "3", "SSH_CONNECTION": "a b c d"},
    )
    lines = job.lines_until(2, "HOROVOD_RANK")
    found = {int(line[1]): json.loads(line.partition(":")[2]) for line in lines}
    directory, env = found[1]
    assert directory == os.getcwd()
    assert env["MINE"] == "wert ü\n2" and env["HOROVOD_CYCLE_TIME"] == "4.0"
    assert env["HOROVOD_HOSTNAME"] == "host2" and env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "192.0.2.1"
    assert "CUDA_VISIBLE_DEVICES" not in env and found[0][1]["CUDA_VISIBLE_DEVICES"] == "3"
    key = env["_HOROVOD_SECRET_KEY"]
    for host in (1, 2):
        for line in hosts.command_lines(host).values():
            assert key not in line and "wert" not in line and str(ROOT) + os.pathsep not in line
    job.process.terminate()
    assert job.finish().returncode == 143


def test_missing_directory(hosts: Hosts, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / "a").mkdir(parents=True)
    (tmp_path / "work" / "here").mkdir(parents=True)
    hosts.stop_sshd(2)
    hosts.start_sshd(2, mounts=[(empty, tmp_path / "work")])
    try:
        words = hosts.words(1, PYTHON, "-m", "horovod.runner.launch", "-np", "2", "-H", "host1,host2", "true")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        directory = tmp_path / "work" / "here"
        result = subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True, timeout=90)
    finally:
        hosts.stop_sshd(2)
        hosts.start_sshd(2)
    assert result.returncode == 126
    assert f"the working directory {directory} does not exist there" in result.stderr
    assert "rank 1 on host2" in result.stderr


def test_a_function_on_several_hosts(hosts: Hosts, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import horovod, socket\n"
        "def work(word):\n"
        "    import numpy as np, horovod.numpy as hvd\n"
        "    hvd.init()\n"
        "    return word, socket.gethostname(), int(hvd.allreduce(np.array([hvd.rank()]), op=hvd.Sum)[0])\n"
        "print(horovod.run(work, ('x',), num_proc=3, hosts='host1:1,host2:1,host3:1'))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = hosts.words(1, PYTHON, script)
    result = subprocess.run(words, env=env, capture_output=True, text=True, timeout=90)
    assert result.stdout == "[('x', 'host1', 3), ('x', 'host2', 3), ('x', 'host3', 3)]\n", result.stderr


@pytest.mark.parametrize("flag", ["--dry-run", "--verbose"])
def test_the_plan_can_be_seen(hosts: Hosts, flag: str) -> None:
    result = horovodrun(hosts, "-np", "2", "-H", "host1,host2", "-p", "22", flag, "true")
    assert result.returncode == 0
    if flag == "--dry-run":
        assert "Through: ssh -a -x -T -o BatchMode=yes" in result.stdout and "-p 22 -- host2" in result.stdout
        assert "Rank 1: HOROVOD_HOSTNAME=host2" in result.stdout
    else:
        assert "host2 takes part with 192.0.2.2" in result.stderr


def test_user_and_interpreter_of_a_host(hosts: Hosts, tmp_path: Path) -> None:
    # A copy of the interpreter's name elsewhere: a link to it knows its virtual environment.
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "python"
    own.write_text(f'#!/bin/sh\nHVD_WHICH=own exec {sys.executable} "$@"\n')
    own.chmod(0o755)
    (tmp_path / "hosts").write_text(f"host1\nroot@host2 slots=1 python={own}\n")
    code = "import os; print(os.environ['HOROVOD_HOSTNAME'], os.environ.get('HVD_WHICH'))"
    words = ["-np", "2", "--hostfile", tmp_path / "hosts", "python", "-c", code]
    result = horovodrun(hosts, *words, env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "[0]<stdout>:host1 None",
        "[1]<stdout>:root@host2 own",
    ]
