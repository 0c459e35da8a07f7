"""The doctor: each check with files of a made-up machine, and the whole of it on this one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from runner_util import horovodrun

from horovod import __version__
from horovod.runner import processors
from horovod.runner.doctor import consultation, machine_checks, network_checks
from horovod.runner.doctor.examination import Examination, examine
from horovod.runner.doctor.finding import ERROR, OK, WARNING, Finding


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3.0),
        ({"proc/self/cgroup": "0::/gone\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n3:memory:/y\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "garbage"}, math.inf),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    assert processors.quota(machine(tmp_path, files)) == expected


def test_processors(tmp_path: Path) -> None:
    assert machine_checks.processors(tmp_path, 4, 4) == (OK, "4 processors for 4 ranks")
    level, text = machine_checks.processors(tmp_path, 4, 8)
    assert level == WARNING and "4 processors, but 8 ranks" in text and "at most 4" in text
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000"})
    level, text = machine_checks.processors(root, 64, 4)
    assert level == WARNING and "allows the time of 2" in text and "at most 2" in text


def test_threads() -> None:
    assert machine_checks.threads({"OMP_NUM_THREADS": "2"}, 8, 4).level == OK
    level, text = machine_checks.threads({"OMP_NUM_THREADS": "4"}, 8, 4)
    assert level == WARNING and "16 on 8 processors" in text and "OMP_NUM_THREADS=2" in text
    level, text = machine_checks.threads({"NPROC": "1", "TF_NUM_INTRAOP_THREADS": "1"}, 8, 2)
    assert level == WARNING and "TF_NUM_INTRAOP_THREADS and NPROC are set" in text and "16 on 8" in text
    assert machine_checks.threads({}, 8, 1).level == OK
    assert machine_checks.threads({}, 8, 3) == (OK, "threads that each rank is told to compute with: 2")


@pytest.mark.parametrize(("source", "level"), [("tsc", OK), ("hpet", WARNING), ("xen", WARNING)])
def test_clock(tmp_path: Path, source: str, level: str) -> None:
    file = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    assert machine_checks.clock(tmp_path) is None
    finding = machine_checks.clock(machine(tmp_path, {file: source + "\n"}))
    assert finding is not None and finding.level == level and source in finding.sentence


def test_memory(tmp_path: Path) -> None:
    assert machine_checks.memory(tmp_path, 2) is None

    def checked(available: int, swap_free: int, ranks: int) -> Finding:
        text = f"MemTotal: 64 kB\nMemAvailable: {available << 20} kB\nSwapTotal: {64 << 20} kB\n"
        root = machine(tmp_path, {"proc/meminfo": text + f"SwapFree: {swap_free << 20} kB\n"})
        finding = machine_checks.memory(root, ranks)
        assert finding is not None
        return finding

    assert checked(8, 64, 4) == (OK, "8.0 GiB of memory are available")
    assert checked(2, 64, 4).level == WARNING and "signal 9" in checked(2, 64, 4).sentence
    assert checked(8, 4, 4).level == WARNING and "swapped" in checked(8, 4, 4).sentence


def test_copying_and_descriptors() -> None:
    assert machine_checks.copying(8e9) == (OK, "one core copies 8.0 GB/s")
    assert machine_checks.copying(1e9).level == WARNING
    assert machine_checks.descriptors(1024, 4096, 64) == (OK, "up to 4096 open files (1024 without asking)")
    level, text = machine_checks.descriptors(256, 256, 64)
    assert level == WARNING and "need up to 320" in text and "LimitNOFILE" in text


def interface(root: Path, name: str, speed: str, dropped: int = 0, state: str = "up") -> None:
    at = f"sys/class/net/{name}/"
    counts = {"rx_packets": 10**6, "tx_packets": 10**6, "rx_dropped": dropped}
    files = {at + f"statistics/{key}": str(value) for key, value in counts.items()}
    machine(root, {at + "speed": speed, at + "mtu": "1500", at + "operstate": state, **files})


def test_interfaces(tmp_path: Path) -> None:
    assert "loopback" in network_checks.interfaces(tmp_path)[0].sentence
    interface(tmp_path, "lo", "-1", state="unknown")
    interface(tmp_path, "eth0", "10000", dropped=100)
    interface(tmp_path, "eth1", "100")
    interface(tmp_path, "eth2", "1000", dropped=1000)
    interface(tmp_path, "eth3", "-1")
    interface(tmp_path, "eth4", "1000", state="down")
    found = network_checks.interfaces(tmp_path)
    assert [finding.level for finding in found] == [OK, WARNING, WARNING, OK]
    assert found[0].sentence == "eth0: 10000 Mbit/s, MTU 1500"
    assert "take 16 s" in found[1].sentence and "Compression" in found[1].sentence
    assert "1000 of 2000000 packets dropped" in found[2].sentence and "ethtool -S eth2" in found[2].sentence
    assert "speed unknown" in found[3].sentence
    assert network_checks.link_mbit(tmp_path) == 10000


def test_congestion(tmp_path: Path) -> None:
    assert network_checks.congestion(tmp_path) is None
    base = "proc/sys/net/ipv4/"
    files = {base + "tcp_congestion_control": "cubic\n", base + "tcp_rmem": "4096 131072 6291456"}
    finding = network_checks.congestion(machine(tmp_path, {**files, base + "tcp_wmem": "4096 16384 4194304"}))
    assert finding == (OK, "congestion control cubic between hosts")
    finding = network_checks.congestion(machine(tmp_path, {base + "tcp_wmem": "4096 16384 262144"}))
    assert finding is not None and finding.level == WARNING and "256 KiB" in finding.sentence


def test_ssh_and_versions() -> None:
    assert network_checks.ssh_time("b", 0.4) == (OK, "b answered after 0.4 s")
    assert network_checks.ssh_time("b", 9).level == WARNING
    here = {"python": "3.11.7", "horovod": "1", "torch": "2"}
    assert network_checks.versions(here, dict(here), "b").level == OK
    assert network_checks.versions(here, {**here, "horovod": "0.9"}, "b").level == ERROR
    assert network_checks.versions(here, {}, "b").level == ERROR
    level, text = network_checks.versions(here, {"python": "3.11.7", "horovod": "1"}, "b")
    assert level == WARNING and "torch missing (here 2)" in text


def test_quick_measurement() -> None:
    good = network_checks.quick_measurement(20e-6, 4e9, 3.0, None)
    assert [finding.level for finding in good] == [OK, OK] and "3.0 times" in good[1].sentence
    bad = network_checks.quick_measurement(900e-6, 0.5e9, 30.0, None)
    assert [finding.level for finding in bad] == [WARNING, WARNING]
    between = network_checks.quick_measurement(900e-6, 0.11e9, 90.0, 1000)
    assert [finding.level for finding in between] == [OK, OK] and "88 % of 1000" in between[1].sentence
    assert network_checks.quick_measurement(1e-4, 0.02e9, 90.0, 1000)[1].level == WARNING


def test_figures_of_the_benchmark() -> None:
    time = {"min": 1e-5, "p50": 2e-5, "p99": 3e-5}
    small = {"benchmark": "latency", "operation": "allreduce", "time": time}
    large = {"benchmark": "allreduce", "operation": "allreduce", "bus_bandwidth": 4e9, "memcpy_ratio": 3.0}
    found = consultation.figures([small, large], None)
    assert found[0].sentence == "two ranks: 4 bytes in 20 µs" and "4.00 GB/s" in found[1].sentence


def test_the_examination_travels() -> None:
    here = examine(1)
    assert Examination.from_json(here.to_json()) == here
    assert here.versions["horovod"] == __version__
    assert len(here.findings) >= 6


def test_this_machine() -> None:
    result = horovodrun("--doctor", "-np", "2", seconds=100)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("localhost:\n") and "for 2 ranks" in result.stdout
    assert "measured:\n" in result.stdout and "two ranks: 4 bytes in" in result.stdout


def test_a_host_that_does_not_answer(tmp_path: Path) -> None:
    """In place of ssh: one host refuses, the other is this machine under another name."""
    script = tmp_path / "kubexec.sh"
    good = '[ "$1" = 198.51.100.8 ] && exec sh -c "$2"'
    script.write_text(f'#!/bin/sh\n{good}\necho "Permission denied" >&2\nexit 255\n')
    script.chmod(0o755)
    env = {"OMPI_MCA_plm_rsh_agent": str(script)}
    flags = ["-H", "198.51.100.7:1,198.51.100.8:3"]
    result = horovodrun("--doctor", *flags, env=env)
    assert result.returncode == 1, result.stderr
    bad, _, answered = result.stdout.partition("198.51.100.8:\n")
    assert "ERROR" in bad and "authorized_keys" in bad
    assert "198.51.100.8 answered after" in answered and "same versions" in answered
    assert "measured" not in answered  # not while a host can't take part
