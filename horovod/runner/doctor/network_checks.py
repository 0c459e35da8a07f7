"""Checks of the network of one machine, and of what was measured over it."""

from __future__ import annotations

from pathlib import Path

from horovod.runner.doctor.finding import ERROR, OK, WARNING, Finding
from horovod.runner.processors import text_of

_DROPPED = 1e-4  # of the packets: from here on TCP loses time
_SLOW_MBIT = 1000
_BUFFER = 4 << 20  # bytes in flight on 10 Gbit/s at 3 ms
_SSH_SECONDS = 5.0
_SLOW_LATENCY = 200e-6
_MEMCPY_RATIO = 8.0
_OF_LINK = 0.5


def interfaces(root: Path) -> list[Finding]:
    """The network interfaces that are up, without loopback."""
    found: list[Finding] = []
    for path in sorted((root / "sys/class/net").glob("*")):
        if path.name != "lo" and text_of(path / "operstate") in ("up", "unknown"):
            found.append(_interface(path))
    if not found:
        return [Finding(OK, "no network interface besides loopback: jobs on this machine only")]
    return found


def link_mbit(root: Path) -> int | None:
    """The speed of the quickest interface that tells one."""
    speeds = [_number(path / "speed") for path in (root / "sys/class/net").glob("*")]
    return max((speed for speed in speeds if speed is not None and speed > 0), default=None)


def _interface(path: Path) -> Finding:
    speed, mtu = _number(path / "speed"), _number(path / "mtu")
    known = speed is not None and speed > 0
    said = f"{path.name}: {f'{speed} Mbit/s' if known else 'speed unknown'}, MTU {mtu}"
    packets = sum(_number(path / "statistics" / f"{way}_packets") or 0 for way in ("rx", "tx"))
    lost = sum(
        _number(path / "statistics" / f"{way}_{what}") or 0
        for way in ("rx", "tx")
        for what in ("dropped", "errors")
    )
    if packets and lost > _DROPPED * packets:
        return Finding(
            WARNING,
            f"{said}; {lost} of {packets} packets dropped or damaged since the start: look at the cable, and "
            f"at 'ethtool -S {path.name}' for rings that are too small (ethtool -G)",
        )
    if known and speed is not None and speed < _SLOW_MBIT:
        return Finding(
            WARNING,
            f"{said}: gradients of 100 MB take {1600 / speed:.0f} s to exchange. Look at the cable and the "
            "switch, choose another interface (--network-interfaces), or compress (hvd.Compression.fp16)",
        )
    return Finding(OK, said)


def congestion(root: Path) -> Finding | None:
    """How TCP finds its speed, and how much may be under way."""
    way = text_of(root / "proc/sys/net/ipv4/tcp_congestion_control")
    if not way:
        return None
    largest = [text_of(root / f"proc/sys/net/ipv4/tcp_{each}mem").split() for each in "rw"]
    small = [int(words[2]) for words in largest if len(words) == 3 and int(words[2]) < _BUFFER]
    if small:
        return Finding(
            WARNING,
            f"congestion control {way}; TCP may have only {min(small) >> 10} KiB under way: for quick links "
            f"set net.ipv4.tcp_rmem and tcp_wmem to '4096 131072 {_BUFFER}' (sysctl -w)",
        )
    return Finding(OK, f"congestion control {way} between hosts")


def ssh_time(host: str, seconds: float) -> Finding:
    """How long it took to reach ``host`` and start Python there."""
    if seconds > _SSH_SECONDS:
        return Finding(
            WARNING,
            f"{host} answered after {seconds:.1f} s: often its sshd looks up names (UseDNS no) or its Python "
            "is on a slow network file system",
        )
    return Finding(OK, f"{host} answered after {seconds:.1f} s")


def versions(here: dict[str, str], there: dict[str, str], host: str) -> Finding:
    """``here`` and ``there`` have the version of each package that is installed."""
    if there.get("horovod") != here["horovod"]:
        return Finding(
            ERROR,
            f"{host} has horovod {there.get('horovod', 'not at all')}, here is {here['horovod']}: "
            "install the same version on all hosts",
        )
    other = [
        f"{name} {there.get(name, 'missing')} (here {version})"
        for name, version in sorted(here.items())
        if there.get(name) != version
    ]
    if other:
        return Finding(WARNING, f"{host} has other versions: {', '.join(other)}. Install the same everywhere")
    return Finding(
        OK, f"{host} has the same versions: {', '.join(f'{n} {v}' for n, v in sorted(here.items()))}"
    )


def quick_measurement(
    latency: float, bus: float, memcpy_ratio: float | None, link_mbit: int | None
) -> list[Finding]:
    """What two ranks reach: seconds for 4 bytes, bytes per second for 16 MiB.

    ``link_mbit``: they are on two hosts; else ``memcpy_ratio`` compares with copying.
    """
    said = f"two ranks: 4 bytes in {latency * 1e6:.0f} µs"
    found = [Finding(OK, said)]
    expected = _SLOW_LATENCY * (5 if link_mbit else 1)
    if latency > expected:
        why = "other programs use the processors, or the machine is virtual and its host is busy"
        found = [Finding(WARNING, f"{said}, expected less than {expected * 1e6:.0f}: {why}")]
    rate = f"16 MiB at {bus / 1e9:.2f} GB/s"
    if link_mbit is not None:
        link = link_mbit * 1e6 / 8
        level = OK if bus >= _OF_LINK * link else WARNING
        hint = (
            "" if level == OK else ": other traffic, or another interface than meant (--network-interfaces)"
        )
        found.append(Finding(level, f"{rate}, {100 * bus / link:.0f} % of {link_mbit} Mbit/s{hint}"))
    elif memcpy_ratio is not None:
        level = OK if memcpy_ratio <= _MEMCPY_RATIO else WARNING
        hint = (
            "" if level == OK else f", expected at most {_MEMCPY_RATIO:g}: other programs use the processors"
        )
        found.append(Finding(level, f"{rate}, {memcpy_ratio:.1f} times as long as copying{hint}"))
    return found


def _number(path: Path) -> int | None:
    try:
        return int(text_of(path))
    except ValueError:
        return None
