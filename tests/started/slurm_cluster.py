"""A Slurm of two nodes on this machine: real daemons, started by hand, with files and ports of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil
import util_packages

PACKAGES = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
_CONF = """
ClusterName=hvdtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=test Nodes=ALL Default=YES State=UP OverSubscribe=FORCE
"""


def why_not() -> str | None:
    """What keeps this machine from having it, and the command that helps."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root: sudo -E python -m pytest tests/started"
    return util_packages.why_not(PACKAGES)


class Slurm:
    """Until close(). `variables` lead its commands to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        conf = directory / "slurm.conf"
        self.variables = {"SLURM_CONF": str(conf), "PATH": util_packages.path()}
        (directory / "state").mkdir()
        conf.write_text(_CONF.format(host=socket.gethostname(), ports=_free_ports(3), directory=directory))
        key = directory / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(64))
        try:
            self._munge(key)
            self._daemon("slurmctld", "-D", "-i")
            self._daemon("slurmd", "-D", "-N", "node1")
            self._daemon("slurmd", "-D", "-N", "node2")
            self._wait_for("sinfo", "--noheader", "--states=idle", "--format=%D", says="2")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        # slurmctld takes ten seconds to end in an orderly way; nothing of it is kept.
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
        # Each step has a daemon of its own that outlives its ranks until slurmctld has been told.
        mark = f"SLURM_CONF={self.variables['SLURM_CONF']}".encode()
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    process.kill()

    def _munge(self, key: Path) -> None:
        files = ("pid-file", "log-file", "seed-file")
        own = [f"--{name}={self.directory / name}" for name in files]
        self._daemon("munged", "-F", "--force", f"--key-file={key}", f"--socket={self.socket}", *own)
        self._wait_for("munge", "-n", f"--socket={self.socket}", says="MUNGE:")

    @property
    def socket(self) -> Path:
        return self.directory / "munge.socket"

    def _daemon(self, name: str, *words: str) -> None:
        program = shutil.which(name, path=util_packages.path())
        assert program is not None
        with (self.directory / f"{name}.out").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [program, *words],
                    env={**os.environ, **self.variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _wait_for(self, *command: str, says: str) -> None:
        deadline = time.monotonic() + 100
        while True:
            done = subprocess.run(
                command, env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=30
            )
            if says in done.stdout:
                return
            logs = "".join(path.read_text(errors="replace") for path in self.directory.glob("*.out"))
            assert time.monotonic() < deadline, f"{command}: {done.stdout}{done.stderr}\n{logs}"
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
