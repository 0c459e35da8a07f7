"""Other hosts through the system's ssh: the command line, and what its failures mean. Pure functions."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from horovod import __version__

# Reads where to find the package from the first line of stdin, byte by byte because frames follow.
_START_AGENT = (
    "import sys, json; sys.path[1:1] = json.loads(sys.stdin.buffer.raw.readline()); "
    "from horovod.runner.agent import main; main()"
)
NOT_FOUND = 127


@dataclass(frozen=True)
class SshOptions:
    """What the user said about ssh."""

    port: int | None = None
    identity_file: str | None = None
    script: str | None = None  # reaches hosts in place of ssh: called with a host and a shell command


def command(host: str, options: SshOptions, start_timeout: float, python: str = sys.executable) -> list[str]:
    """Starts an agent on ``host``. Nothing secret: everybody can see it in ``ps``."""
    words = ["ssh", "-a", "-x", "-T"]
    settings = {
        "BatchMode": "yes",  # never asks: nobody would see the question
        "PasswordAuthentication": "no",
        # A host seen for the first time is taken at its word, a changed one is not.
        "StrictHostKeyChecking": "accept-new",
        "ConnectTimeout": str(max(1, math.ceil(start_timeout))),
        "ClearAllForwardings": "yes",
        # A connection shared with the user's other sessions would live and die with them.
        "ControlPath": "none",
    }
    for name, value in settings.items():
        words += ["-o", f"{name}={value}"]
    if options.port is not None:
        words += ["-p", str(options.port)]
    if options.identity_file is not None:
        words += ["-i", options.identity_file]
    # Not the home directory, whose files could shadow modules of the standard library.
    remote = f"cd / && exec {shlex.quote(python)} -c {shlex.quote(_START_AGENT)}"
    return [*words, "--", host, remote] if options.script is None else [options.script, host, remote]


def ended(code: int, complaints: Sequence[str]) -> str:
    """How a connection ended that had worked, in words."""
    last = next((line.strip() for line in reversed(complaints) if line.strip()), "")
    how = f"a signal ended ssh ({-code})" if code < 0 else f"ssh ended with code {code}"
    return f"{how} ({last})" if last else how


def explain(host: str, code: int, complaints: Sequence[str], python: str = sys.executable) -> str:
    """Why no agent came to life on ``host``, from the end of ssh and its stderr, and what to do about it."""
    text = "\n".join(complaints)
    last = next((line.strip() for line in reversed(complaints) if line.strip()), "")
    said = f" ({last})" if last else ""
    if "No module named 'horovod" in text or "No module named horovod" in text:
        return (
            f"horovod is not installed there for {python}: install it with "
            f"'{python} -m pip install horovod=={__version__}' on {host}"
        )
    if code == NOT_FOUND or (python in text and ("not found" in text or "No such file" in text)):
        return f"it has no {python}{said}: every host needs Python and horovod at the same place as here"
    if "IDENTIFICATION HAS CHANGED" in text or "Host key verification failed" in text:
        return (
            "its host key is not the known one, so it may be another machine: if it was set up anew, "
            f"forget the old key with 'ssh-keygen -R {host}'"
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
