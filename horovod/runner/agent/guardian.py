"""The guardian: the agent's parent, which ends what an agent leaves behind that was killed itself.

Being a subreaper, too, it then becomes the parent of everything that the workers have started. On
the machine of the launcher that one could do it, but not if both are killed; elsewhere there is
nobody else. If the guardian is killed, the agent ends the job.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from types import FrameType
from typing import NoReturn

from horovod.runner.processes import Sweep, become_subreaper

_KILL_AFTER = 0.5  # seconds from SIGTERM to SIGKILL; the workers were killed with the agent already
_TICK = 0.03  # seconds between two looks at /proc


def under_guard() -> int:
    """Goes on in a child.

    Returns a descriptor that becomes readable when its parent, the guardian, ends.
    """
    become_subreaper()
    life, held = os.pipe()
    agent = os.fork()
    if agent:
        os.close(life)
        _guard(agent)
    os.close(held)
    become_subreaper()  # which a child does not inherit
    return life


def _guard(agent: int) -> NoReturn:
    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent, number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, pass_on)
    # Slurm sends them to every process; the agent passes them on to the workers.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # The pipes belong to the agent: their end must be seen by the others.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _, status = os.waitpid(agent, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # its number may be another process's from now on
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        sweep = Sweep(time.monotonic(), _KILL_AFTER)
        while not sweep.step(time.monotonic()):
            time.sleep(_TICK)
    if code < 0:
        # Ends in the same way, so that a waiting parent sees how the agent ended.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))
