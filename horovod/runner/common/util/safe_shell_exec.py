"""A command that leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from horovod.runner.processes import descendants
from horovod.runner.util.threads import in_thread

GRACEFUL_TERMINATION_TIME_S = 5
_INTERVAL = 0.1  # seconds between two looks at the events


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs a command and returns its exit code, 128 + n if signal n ended it.

    A string goes through ``/bin/sh``; a list of words does not, and so needs no quoting. Output
    goes to the text streams ``stdout`` and ``stderr``, by default to this process's; with an
    ``index`` each line begins with ``[index]<stdout>:``. Once one of ``events`` is set, or an
    exception such as KeyboardInterrupt comes, or the command itself has ended, what is left in its
    session and below it gets SIGTERM, and after GRACEFUL_TERMINATION_TIME_S seconds SIGKILL.
    """
    if prefix_output_with_timestamp:
        raise ValueError("execute() writes no times: use horovodrun --prefix-output-with-timestamp")
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    process = subprocess.Popen(
        words,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    pumps = [
        in_thread(_pump, (process.stdout, stdout or sys.stdout, _prefix(index, "stdout"))),
        in_thread(_pump, (process.stderr, stderr or sys.stderr, _prefix(index, "stderr"))),
    ]
    try:
        _wait(process.pid, events or ())
    finally:
        # It is collected last: until then its number, and its session's, can't be another's.
        _end_all(process.pid)
        process.wait()
    for pump in pumps:
        pump.join()
    code = process.returncode
    return 128 - code if code < 0 else code


def _prefix(index: int | None, stream: str) -> str:
    return "" if index is None else f"[{index}]<{stream}>:"


def _pump(source: IO[bytes], sink: Any, prefix: str) -> None:
    with source:
        for line in source:
            sink.write(prefix + line.decode(errors="replace"))
            sink.flush()


def _wait(pid: int, events: Sequence[threading.Event]) -> None:
    """Until the process has ended or one of the events is set."""
    descriptor = os.pidfd_open(pid)
    try:
        while not select.select([descriptor], [], [], _INTERVAL if events else None)[0]:
            if any(event.is_set() for event in events):
                return
    finally:
        os.close(descriptor)


def _end_all(leader: int) -> None:
    kill_at = time.monotonic() + GRACEFUL_TERMINATION_TIME_S
    # Pidfds, for what has lost its place below the leader is still to be ended
    seen: dict[int, int] = {}
    try:
        while True:
            # The leader first: it must not take the end of a child for a success.
            for pid in sorted(_session(leader) | set(descendants(leader)), key=lambda pid: pid != leader):
                if pid not in seen:
                    with contextlib.suppress(ProcessLookupError):
                        seen[pid] = os.pidfd_open(pid)
                        signal.pidfd_send_signal(seen[pid], signal.SIGTERM)
            ended = select.select(list(seen.values()), [], [], 0)[0]
            left = [descriptor for descriptor in seen.values() if descriptor not in ended]
            if not left:
                return
            if time.monotonic() >= kill_at:
                for descriptor in left:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            time.sleep(_INTERVAL / 5)
    finally:
        for descriptor in seen.values():
            os.close(descriptor)


def _session(leader: int) -> set[int]:
    """The living processes of the session."""
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The name, in parentheses, may contain anything: look behind the last one.
                state, _, _, session = file.read().rpartition(b")")[2].split(None, 4)[:4]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if int(session) == leader and state not in (b"Z", b"X"):
            found.add(int(entry))
    return found
