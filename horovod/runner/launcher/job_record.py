"""What is kept of a job: its directory among the user's jobs, and its event log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from horovod import __version__
from horovod.runner import jobs
from horovod.runner.launcher.event_log import SCHEMA, EventLog, settings_without_secrets, without_secrets


class JobRecord:
    """Begins with ``job_start`` and ends with ``job_end``.

    A state directory that can't be written is no reason not to run: the job then has no place
    there, ``path`` is None, and ``problem`` says why. ``files`` were asked for: OSError if one of
    them can't be written.
    """

    def __init__(
        self,
        events: EventLog,
        *,
        environ: Mapping[str, str],
        keep: bool,
        files: Sequence[Path] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.events = events
        self.path: Path | None = None
        self.problem = ""
        self._about: dict[str, Any] = {}
        self._clock = clock
        self._began = time.monotonic()
        events.tell(self._heard)
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            events.write_to(file)
        if keep:
            try:
                self.path = jobs.create(jobs.directory(environ), clock(), os.getpid())
                events.write_to(self.path / jobs.EVENTS)
            except OSError as error:
                self.problem = f"{error.filename or jobs.directory(environ)}: {error.strerror}"

    def begin(
        self,
        *,
        np: int,
        hosts: Mapping[str, Sequence[int]],
        command: Sequence[str],
        settings: Mapping[str, str],
    ) -> None:
        """Says what the job is; ``hosts`` has the ranks of each, as far as they are known."""
        words = without_secrets(command)
        self._about |= {
            "version": __version__,
            "node": jobs.node(),
            "pid": os.getpid(),
            "ticks": jobs.started_at(os.getpid()),
            "time": self._clock(),
            "np": np,
            "hosts": {host: list(ranks) for host, ranks in hosts.items()},
            "command": words,
        }
        self.say()
        self.events.add(
            "job_start",
            schema=SCHEMA,
            version=__version__,
            id=None if self.path is None else self.path.name,
            np=np,
            hosts=self._about["hosts"],
            command=words,
            settings=settings_without_secrets(settings),
        )

    def _heard(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "reset":
            self.say(np=event["size"])

    def say(self, **more: Any) -> None:
        """Adds to what others find in the job's directory."""
        self._about.update(more)
        if self.path is not None:
            try:
                jobs.write_about(self.path, self._about)
            except OSError as error:
                self.problem = f"{self.path}: {error.strerror}"

    def end(self, code: int, **more: Any) -> None:
        """The job is over; closes the files."""
        seconds = round(time.monotonic() - self._began, 3)
        self.events.add("job_end", code=code, seconds=seconds, **more)
        self.events.close()
        self.say(code=code, seconds=seconds)
