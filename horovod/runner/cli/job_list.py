"""``horovodrun --jobs``: the last jobs of this user on this machine."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping

from horovod.runner import jobs

_COMMAND_WIDTH = 60


def job_list(environ: Mapping[str, str]) -> str:
    """A line for each, the newest last."""
    directory = jobs.directory(environ)
    entries = jobs.listed(directory)
    if not entries:
        return f"No job has been started yet ({directory} is empty)."
    lines = [_line(entry) for entry in entries]
    return "\n".join([*lines, f"Events: {directory}/<job>/{jobs.EVENTS}"])


def _line(entry: jobs.JobEntry) -> str:
    about = entry.about
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.get("time", 0)))
    command = shlex.join(about.get("command", []))
    if len(command) > _COMMAND_WIDTH:
        command = command[: _COMMAND_WIDTH - 1] + "…"
    return f"{entry.id}  {began}  {about.get('np', '?'):>3} ranks  {_state(entry):24}  {command}"


def _state(entry: jobs.JobEntry) -> str:
    if entry.running:
        return "running"
    if entry.elsewhere:
        return f"elsewhere ({entry.about['node']})"
    code = entry.about.get("code")
    if code is None:
        return "its launcher was killed"
    return f"ended with {code} after {_duration(entry.about.get('seconds', 0.0))}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
