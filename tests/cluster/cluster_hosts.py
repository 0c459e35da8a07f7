"""Several "hosts" on one machine: network namespaces with their own addresses, host name and sshd.

Everything happens inside the namespaces: host i is 192.0.2.i and 2001:db8::i on eth0, 198.51.100.i on eth1,
and each has a docker0 with the same address, as real ones do. The file system is shared.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import util_packages

PACKAGES = {"ip": "iproute2", "sshd": "openssh-server", "iptables": "iptables", "ssh": "openssh-client"}
_NETWORKS = ("192.0.2", "198.51.100")  # of eth0 and eth1
# Arguments: directory of the fixture, host, place of ~/.ssh, pairs "from:to" to mount, and what to run.
_ENTER = """
set -e
directory=$1; hostname "$2"; ssh=$3; mounts=$4; shift 4
mount --bind "$directory/hosts" /etc/hosts
mount --bind "$directory/ssh" "$ssh"
for pair in $mounts; do mount --bind "${pair%%:*}" "${pair#*:}"; done
exec "$@"
"""


def why_not() -> str | None:
    """What keeps this machine from having such hosts, and the command that helps."""
    if os.geteuid() != 0:
        return "network namespaces need root: sudo -E python -m pytest tests/cluster"
    missing = util_packages.why_not(PACKAGES)
    if missing is not None:
        return missing
    trial = f"hvdtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", trial], check=True)
    return None


def run(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=60)


_shared: dict[int, Hosts] = {}


def shared(count: int = 3) -> Hosts:
    """Some for the whole session, made when first wanted. Each user leaves them as they were."""
    if count not in _shared:
        _shared[count] = Hosts(count, Path(tempfile.mkdtemp(prefix="hvd-hosts-")))
    return _shared[count]


def close_shared() -> None:
    while _shared:
        _, hosts = _shared.popitem()
        hosts.close()
        shutil.rmtree(hosts.directory)


class Hosts:
    """host1 ... hostN, until close()."""

    def __init__(self, count: int, directory: Path) -> None:
        self.count = count
        self.directory = directory
        self._home_ssh = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh"
        self._sshds: dict[int, subprocess.Popen[bytes]] = {}
        self._prefix = f"hvd{os.getpid()}of{count}"
        # The place for a mount. It stays empty, and there: another session may use it, too.
        self._home_ssh.mkdir(mode=0o700, exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        try:
            self._write_files()
            self._make_networks()
            for host in range(1, count + 1):
                self.start_sshd(host)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for host in list(self._sshds):
            self.stop_sshd(host)
        for name in [*map(self.namespace, range(1, self.count + 1)), f"{self._prefix}-sw"]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def namespace(self, host: int) -> str:
        return f"{self._prefix}-{host}"

    def words(self, host: int, *command: str | Path, mounts: Sequence[tuple[Path, Path]] = ()) -> list[str]:
        """What to execute in order to run a command on a host; the pid will be the command's."""
        pairs = " ".join(f"{source}:{target}" for source, target in mounts)
        enter = ["ip", "netns", "exec", self.namespace(host), "unshare", "-m", "-u", "sh", "-c", _ENTER, "sh"]
        return [*enter, str(self.directory), f"host{host}", str(self._home_ssh), pairs, *map(str, command)]

    def start_sshd(self, host: int, mounts: Sequence[tuple[Path, Path]] = (), startups: str = "100") -> None:
        """``mounts``: directories that this host sees in place of others; ``startups``: see MaxStartups."""
        sshd = shutil.which("sshd", path=util_packages.path())
        assert sshd is not None
        settings = ["-o", f"MaxStartups={startups}", "-f", self.directory / "sshd_config"]
        command = self.words(host, sshd, "-D", "-e", *settings, mounts=mounts)
        with (self.directory / f"sshd{host}.log").open("wb") as log:
            self._sshds[host] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        probe = [sys.executable, "-c", f"import socket; socket.create_connection(('192.0.2.{host}', 22), 1)"]
        deadline = time.monotonic() + 60
        while subprocess.run(self.words(host, *probe), capture_output=True).returncode != 0:
            assert self._sshds[host].poll() is None, (self.directory / f"sshd{host}.log").read_text()
            assert time.monotonic() < deadline, f"sshd on host{host} does not answer"

    def stop_sshd(self, host: int) -> None:
        """Only the listener; connections live on."""
        process = self._sshds.pop(host)
        process.terminate()
        process.wait(60)

    def pids(self, host: int) -> list[int]:
        """Living processes on a host, besides the sshd that listens."""
        words = ["ip", "netns", "pids", self.namespace(host)]
        listed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        own = {process.pid for process in self._sshds.values()}
        return [pid for pid in map(int, listed.stdout.split()) if pid not in own and _lives(pid)]

    def command_lines(self, host: int) -> dict[int, str]:
        """By process."""
        found = {}
        for pid in self.pids(host):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def everyone(self) -> list[int]:
        return [pid for host in range(1, self.count + 1) for pid in self.pids(host)]

    def wait_until_empty(self) -> None:
        """AssertionError, and a clean end, if processes are left. ssh connections take a moment to unwind."""
        deadline = time.monotonic() + 20
        while self.everyone():
            if time.monotonic() > deadline:
                left = {f"host{host}": self.command_lines(host) for host in range(1, self.count + 1)}
                self.kill_all()
                raise AssertionError(f"processes are left on the hosts: {left}")
            time.sleep(0.02)

    def kill_all(self) -> None:
        """After a failed test: so that the next one starts clean."""
        for pid in self.everyone():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def iptables(self, host: int, *words: str) -> None:
        run("ip", "netns", "exec", self.namespace(host), "iptables", "-w", *words)

    def cut_off(self, host: int) -> None:
        """No packet comes in or goes out any more, as if the cable were pulled."""
        for chain in ("INPUT", "OUTPUT"):
            self.iptables(host, "-A", chain, "!", "-i" if chain == "INPUT" else "-o", "lo", "-j", "DROP")

    def mend(self, host: int) -> None:
        self.iptables(host, "-F")

    def plug(self, host: int, state: str) -> None:
        """Sets the switch's ports of a host "up" or "down": so does the cable to one that is pulled."""
        for number in range(len(_NETWORKS)):
            run("ip", "-n", f"{self._prefix}-sw", "link", "set", f"p{number}-{host}", state)

    def switch_ipv4(self, on: bool) -> None:
        """Takes all hosts' IPv4 addresses away from their networks, or gives them back."""
        for host in range(1, self.count + 1):
            for number, network in enumerate(_NETWORKS):
                address = [f"{network}.{host}/24", "dev", f"eth{number}"]
                run("ip", "-n", self.namespace(host), "addr", "add" if on else "del", *address)

    def limit(self, rate: str) -> None:
        """Gives eth0 of every host a rate (tc's notation) in both directions, as a switch port has."""
        self._shape("replace", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")

    def unlimit(self) -> None:
        self._shape("del")

    def _shape(self, verb: str, *shape: str) -> None:
        for host in range(1, self.count + 1):
            for space, port in ((self.namespace(host), "eth0"), (f"{self._prefix}-sw", f"p0-{host}")):
                run("ip", "netns", "exec", space, "tc", "qdisc", verb, "dev", port, "root", *shape)

    def _write_files(self) -> None:
        directory = self.directory
        ssh = directory / "ssh"
        ssh.mkdir(mode=0o700)
        for file in (ssh / "id_ed25519", directory / "hostkey", directory / "other_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file)
        shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
        names = ["127.0.0.1 localhost", "::1 localhost"]
        for host in range(1, self.count + 2):  # one more: a name without a machine
            names += [f"192.0.2.{host} host{host}", f"2001:db8::{host} six{host}"]
        (directory / "hosts").write_text("\n".join(names) + "\n")
        (directory / "sshd_config").write_text(
            f"HostKey {directory}/hostkey\nAuthorizedKeysFile {ssh}/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nPidFile none\n"
        )

    def _make_networks(self) -> None:
        switch = f"{self._prefix}-sw"
        run("ip", "netns", "add", switch)
        for number in (0, 1):
            run("ip", "-n", switch, "link", "add", f"br{number}", "type", "bridge")
            run("ip", "-n", switch, "link", "set", f"br{number}", "up")
        for host in range(1, self.count + 1):
            space = self.namespace(host)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
            for number, network in enumerate(_NETWORKS):
                eth, port = f"eth{number}", f"p{number}-{host}"
                peer = ["peer", "name", port, "netns", switch]
                run("ip", "link", "add", eth, "netns", space, "type", "veth", *peer)
                run("ip", "-n", switch, "link", "set", port, "master", f"br{number}", "up")
                run("ip", "-n", space, "addr", "add", f"{network}.{host}/24", "dev", eth)
                run("ip", "-n", space, "link", "set", eth, "up")
            run("ip", "-n", space, "addr", "add", f"2001:db8::{host}/64", "dev", "eth0", "nodad")
            run("ip", "-n", space, "link", "add", "docker0", "type", "bridge")
            run("ip", "-n", space, "addr", "add", "172.17.0.1/16", "dev", "docker0")
            run("ip", "-n", space, "link", "set", "docker0", "up")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
