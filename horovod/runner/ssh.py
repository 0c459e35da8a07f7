"""Other hosts through the system's ssh: the command line, and what its failures mean.

Pure functions.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from horovod import __version__

# Reads where to find the package from the first line of stdin, byte by byte because frames follow.
_START_AGENT = (
    "import sys, json; sys.path[1:1] = json.loads(sys.stdin.buffer.raw.readline()); "
    "from horovod.runner.agent.main import main; main()"
)
NOT_FOUND = 127


@dataclass(frozen=True)
class SshOptions:
    """What the user said about ssh."""

    port: int | None = None
    identity_file: str | None = None
    # Reaches hosts in place of ssh: called with a host and a shell command
    script: str | None = None


def command(host: str, options: SshOptions, start_timeout: float, python: str) -> list[str]:
    """Starts an agent on ``host``. Nothing secret: everybody can see it in ``ps``."""
    # Not the home directory, whose files could shadow modules of the standard library.
    remote = f"cd / && exec {shlex.quote(python)} -c {shlex.quote(_START_AGENT)}"
    return session(host, options, start_timeout, remote)


def session(host: str, options: SshOptions, start_timeout: float, remote: str) -> list[str]:
    """Runs the shell command ``remote`` on ``host``, without asking anybody anything."""
    words = ["ssh", "-a", "-x", "-T"]
    settings = {
        "BatchMode": "yes",  # never asks: nobody would see the question
        "PasswordAuthentication": "no",
        "ConnectTimeout": str(max(1, math.ceil(start_timeout))),
        "ClearAllForwardings": "yes",
        # A connection shared with the user's other sessions would live and die with them.
        "ControlPath": "none",
        "RemoteCommand": "none",  # of the user's configuration, for sessions by hand
    }
    for name, value in settings.items():
        words += ["-o", f"{name}={value}"]
    if options.port is not None:
        words += ["-p", str(options.port)]
    if options.identity_file is not None:
        words += ["-i", options.identity_file]
    return [*words, "--", host, remote] if options.script is None else [options.script, host, remote]


# Batch systems send signals to every process: what they mean for the job is the launcher's to
# decide.
#
# A line of descriptor $1 is the permission to connect: many at once would be too many for a jump
# host.
_IN_TURN = """
trap '' HUP INT TERM USR1 USR2
[ "$2" = 0.00 ] || sleep "$2"
read -r turn <"/dev/fd/$1" || exit
shift 2
"""

# A host seen for the first time is taken at its word, a changed one is not, unless the user's
# configuration says something else than the default, which is to ask.
_CAREFULLY = """
new=
case $("$@" 2>/dev/null </dev/null) in
    *"stricthostkeychecking ask"*) new="-oStrictHostKeyChecking=accept-new" ;;
esac
shift 2
exec ssh $new "$@"
"""


def start(words: Sequence[str], turns: int, pause: float) -> list[str]:
    """What to execute for a ``command()``: also looks at what the user's configuration says.

    It waits for ``pause`` seconds, and then for a line of the descriptor ``turns``.
    """
    turn = [str(turns), f"{pause:.2f}"]
    if words[0] != "ssh":
        return ["/bin/sh", "-c", f'{_IN_TURN} exec "$@"', "sh", *turn, *words]
    return ["/bin/sh", "-c", _IN_TURN + _CAREFULLY, "sh", *turn, "ssh", "-G", *words[1:]]


def dropped(code: int, complaints: Sequence[str]) -> bool:
    """Whether a server was too busy to talk, its own or a jump host's: sshd's MaxStartups."""
    text = "\n".join(complaints)
    return code == 255 and bool(re.search(r"kex_exchange_identification|Connection (closed|reset) by", text))


def ended(code: int, complaints: Sequence[str]) -> str:
    """How a connection ended that had worked, in words."""
    last = next((line.strip() for line in reversed(complaints) if line.strip()), "")
    how = f"a signal ended ssh ({-code})" if code < 0 else f"ssh ended with code {code}"
    return f"{how} ({last})" if last else how


def explain(host: str, code: int, complaints: Sequence[str], python: str = sys.executable) -> str:
    """Why no agent started on ``host``, by ssh's exit code and stderr, and what to do about it."""
    text = "\n".join(complaints)
    last = next((line.strip() for line in reversed(complaints) if line.strip()), "")
    said = f" ({last})" if last else ""
    if "No module named 'horovod" in text or "No module named horovod" in text:
        return (
            f"horovod is not installed there for {python}: install it with "
            f"'{python} -m pip install horovod=={__version__}' on {host}"
        )
    if code == NOT_FOUND or (python in text and ("not found" in text or "No such file" in text)):
        return (
            f"it has no {python}{said}: every host needs Python and horovod at the same place as here, or "
            "python=PATH in the hostfile"
        )
    if "No " in text and " host key is known for " in text:
        return (
            "its host key is not known, and your StrictHostKeyChecking accepts only known ones: "
            f"add it to ~/.ssh/known_hosts, for example by 'ssh {host}'"
        )
    if "IDENTIFICATION HAS CHANGED" in text or "Host key verification failed" in text:
        return (
            "its host key is not the known one, so it may be another machine: if it was set up anew, "
            f"forget the old key with 'ssh-keygen -R {host.rpartition('@')[2]}'"
        )
    if "Permission denied" in text:
        return (
            f"ssh was refused{said}: put your public key into ~/.ssh/authorized_keys there, or name the "
            "private key with -i; 'ssh -o BatchMode=yes " + host + " true' must work"
        )
    if "Could not resolve hostname" in text:
        return f"the name is unknown{said}: correct -H or the hostfile"
    if "Connection refused" in text:
        return f"no ssh server answers{said}: start sshd there, or give its port with -p"
    if any(words in text for words in ("No route to host", "unreachable", "timed out", "Host is down")):
        return f"it is down or cannot be reached{said}"
    if code == 255:
        return f"ssh failed{said or ' without saying why'}"
    return f"the agent could not be started, exit code {code}{said}"
