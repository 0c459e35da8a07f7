"""``horovodrun --top [JOB]``: a running job in the terminal, in a process of its own.

It reads the event log of the job and, if that has a dashboard, its state. So it can't hold up the
job, whatever the terminal does.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from horovod._figures.model import Model, Snapshot
from horovod.runner import jobs
from horovod.runner.launcher.event_log import read

_EVERY = 1.0
_SECONDS = 5.0
_EVENTS = 8
_COLOURS = {"running": "green", "stalled": "yellow", "failed": "red"}


def top(word: str | None, environ: Mapping[str, str]) -> int:
    """Shows the job until it ends or Ctrl-C comes."""
    job = jobs.named(environ, word)
    if job is None:
        return 1
    source = Source(job)
    console = Console()
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while True:
                snapshot = source.snapshot(time.time())
                live.update(drawn(snapshot), refresh=True)
                job = jobs.find(jobs.directory(environ), job.id)
                if snapshot["over"] or not (job.running or job.elsewhere):
                    break
                time.sleep(_EVERY)
    except KeyboardInterrupt:
        return 130
    return 0


class Source:
    """What is known of a job, from its directory and its dashboard."""

    def __init__(self, job: jobs.JobEntry) -> None:
        self._job = job
        self._model = Model()
        self._file = (job.path / jobs.EVENTS).open("rb")
        self._rest = b""
        self._token = _read(job.path / "token")
        self._told: dict[int, dict[str, Any]] = {}  # what the dashboard said last of each process

    def snapshot(self, now: float) -> Snapshot:
        """At this moment."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for event in read(line + b"\n" for line in lines):
            self._model.event(event)
        told = self._from_dashboard()
        if told is not None:
            self._told = {each["pid"]: each for each in told["ranks"] if each.get("pid")}
            return told
        # The dashboard ends with the job: what it said is still the last that is known.
        snapshot = self._model.snapshot(now)
        snapshot["ranks"] = [
            {**self._told.get(each.get("pid"), {}), "running": "", **each} for each in snapshot["ranks"]
        ]
        return snapshot

    def _from_dashboard(self) -> Snapshot | None:
        place = self._job.about.get("dashboard")
        if not place or not self._token or self._job.elsewhere:
            return None
        connection = http.client.HTTPConnection(place["address"], place["port"], timeout=_SECONDS)
        try:
            connection.request("GET", "/state", headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            snapshot: Snapshot | None = json.loads(answer.read()) if answer.status == 200 else None
            return snapshot
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def drawn(snapshot: Snapshot) -> Group:
    """The picture: a headline, a table of the ranks, the last events."""
    job = snapshot["job"]
    state = f"ended with code {job['code']}" if snapshot["over"] else "running"
    if snapshot["silent"]:
        state = f"no news for {snapshot['news']:.0f} s"
    rates = snapshot["rates"]
    figures = [f"{job.get('np', '?')} ranks", state]
    if rates:
        if rates["steps_per_second"] is not None:
            figures.append(f"{rates['steps_per_second']:.2f} steps/s")
        figures.append(f"{rates['bytes_per_second'] / 1e6:.1f} MB/s")
        figures.append(f"exposed {100 * rates['exposed']:.0f} %")
    table = Table(box=None, pad_edge=False)
    for name in ("rank", "host", "pid", "state", "step", "exposed", "CPU", "memory", "late", "running"):
        table.add_column(name)
    for rank in snapshot["ranks"]:
        table.add_row(*_cells(rank), style=_COLOURS.get(rank["state"], "dim"))
    lines = [
        Text(f"{time.strftime('%H:%M:%S', time.localtime(event['time']))}  {event['event']}  {_words(event)}")
        for event in snapshot["events"][-_EVENTS:]
    ]
    return Group(Text(f"{job.get('id') or 'job'}: " + ", ".join(figures), style="bold"), table, *lines)


def _cells(rank: Mapping[str, Any]) -> list[Text]:
    def share(name: str) -> str:
        return "" if rank.get(name) is None else f"{100 * rank[name]:.0f} %"

    memory = rank.get("memory")
    late = rank.get("late_seconds") or 0.0
    words = [
        str(rank["rank"]),
        str(rank["host"]),
        str(rank.get("pid", "")),
        str(rank["state"]),
        "" if rank.get("steps") is None else str(rank["steps"]),
        share("exposed"),
        share("cpu"),
        "" if not memory else f"{memory / 1e9:.2f} GB",
        f"{late:.1f} s" if late >= 0.1 else "",
        str(rank.get("running") or ""),
    ]
    return [Text(word) for word in words]  # names may look like rich's markup


def _words(event: Mapping[str, Any]) -> str:
    for name in ("text", "what", "reason", "signal"):
        if event.get(name):
            return str(event[name]).splitlines()[0]
    return " ".join(f"{key} {event[key]}" for key in ("rank", "host", "code", "steps") if key in event)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
