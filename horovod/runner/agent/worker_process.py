"""A worker that the agent has started."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

from horovod.runner.agent.frames import Kind
from horovod.runner.agent.recent import VARIABLE as RECENT
from horovod.runner.agent.recent import RecentFile
from horovod.runner.payload import WorkerFiles
from horovod.runner.plan.command import NOT_EXECUTABLE, NOT_FOUND, CommandError, resolve
from horovod.runner.plan.job_plan import HostPlan, Worker


@dataclass
class WorkerProcess:
    """A started worker and the descriptors that its output comes from."""

    rank: int
    process: subprocess.Popen[bytes]
    recent: RecentFile
    streams: dict[int, Kind] = field(default_factory=dict)
    files: WorkerFiles | None = None
    ended_at: float | None = None
    reaped: bool = False


def start(
    plan: HostPlan,
    worker: Worker,
    prepare: Callable[[], None],
    recent: RecentFile,
    files: WorkerFiles | None,
) -> subprocess.Popen[bytes]:
    """Starts a worker. CommandError says why it can't be."""
    env = {**plan.env, **worker.env, RECENT: str(recent.descriptor)}
    if not os.path.isdir(plan.directory):
        raise CommandError(f"the working directory {plan.directory} does not exist there", NOT_EXECUTABLE)
    command = resolve(plan.command, plan.directory, env.get("PATH")) if plan.resolve else plan.command
    if files is not None:
        env.update(files.environment())
    try:
        return subprocess.Popen(
            command,
            cwd=plan.directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=prepare,
            bufsize=0,
            pass_fds=(recent.descriptor, *(() if files is None else files.descriptors())),
        )
    except OSError as error:
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        raise CommandError(f"{command[0]}: {error.strerror}", code) from None
