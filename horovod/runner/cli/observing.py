"""What watches a job from the launcher: rank 0's news, the dashboard, the report."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from horovod._figures.private_files import write_secret
from horovod.runner.dashboard.live import LiveModel
from horovod.runner.jobs import EVENTS
from horovod.runner.launcher.event_log import EventLog
from horovod.runner.launcher.job_record import JobRecord
from horovod.runner.launcher.observation import Observation
from horovod.runner.launcher.rendezvous import Rendezvous
from horovod.runner.launcher.stack_requests import StackRequests
from horovod.runner.launcher.supervision import Supervision, Watch

TOKEN = "token"

AnyJob = TypeVar("AnyJob", bound=Supervision)


def timelines() -> ModuleType:
    """What `--timeline` needs before the job and after it; few jobs do."""
    from horovod.runner.cli import timeline

    return timeline


def interval(args: argparse.Namespace) -> str:
    """Seconds between two summaries of rank 0."""
    return "1" if _dashboard_wanted(args) or args.report is not None else "10"


def run(
    args: argparse.Namespace,
    rendezvous: Rendezvous,
    make: Callable[[Watch], AnyJob],
    **about: Any,
) -> tuple[AnyJob, int]:
    """Runs a job to its end, watched and recorded, and returns it with its exit code.

    ``about`` is what JobRecord.begin() is to say. OSError or ValueError for what can't be had.
    """
    record = _record(args)
    record.events.warn = lambda text: print(f"horovodrun: {text}", file=sys.stderr)  # until the job does
    if record.problem and (args.verbose or _dashboard_wanted(args)):
        without = "no event log is kept, and --top will not find the job"
        print(f"horovodrun: {without}: {record.problem}", file=sys.stderr)
    observer = Observer(args, rendezvous, record)
    record.begin(**about)
    job = make(Watch(record.events, StackRequests(observer.observation.ask_stacks)))
    code = job.run()
    record.end(code, **observer.totals)
    observer.close()
    return job, code


class Observer:
    """Everything that looks at one job."""

    def __init__(self, args: argparse.Namespace, rendezvous: Rendezvous, record: JobRecord) -> None:
        """ValueError or OSError if the dashboard can't be where it was wanted."""
        self._report = None if args.report is None else Path(args.report)
        self._model = LiveModel(lambda fields: record.events.add("step", **fields))
        record.events.tell(self._model.event)
        self.observation = Observation(rendezvous, record.events, self._model.summaries)
        self._dashboard = None
        if _dashboard_wanted(args):
            from horovod._figures.door import address_of, is_loopback
            from horovod.runner.dashboard.server import Dashboard

            where = args.dashboard_address or "127.0.0.1:0"
            address, port = address_of(where, "--dashboard-address")
            token = secrets.token_urlsafe(24)
            ask, names = self.observation.ask_stacks, [socket.gethostname()]
            model = self._model
            try:
                self._dashboard = Dashboard(model.snapshot, ask, token, address, port, names, model.metrics)
            except OSError as error:
                remedy = "give an address of this machine and a port that is free, or 0 for any"
                raise OSError(f"--dashboard-address {where}: {error.strerror}: {remedy}") from error
            if not is_loopback(address):
                text = (
                    "others on the network can reach the dashboard: it asks for the token, without encryption"
                )
                print(f"horovodrun: warning: {text}", file=sys.stderr)
            print(f"horovodrun: dashboard: {self._dashboard.url}", file=sys.stderr, flush=True)
            if record.path is not None:
                try:
                    write_secret(record.path / TOKEN, token)
                except OSError as error:
                    text = f"{record.path / TOKEN}: {error.strerror}: --top won't show figures of the ranks"
                    print(f"horovodrun: {text}", file=sys.stderr)
                record.say(dashboard={"address": address, "port": self._dashboard.port})

    @property
    def totals(self) -> dict[str, object]:
        return dict(self._model.totals)

    def close(self) -> None:
        """Writes the report; the dashboard ends with the launcher."""
        if self._report is not None:
            from horovod.runner.dashboard.server import report

            try:
                self._report.parent.mkdir(parents=True, exist_ok=True)
                self._report.write_bytes(report(self._model.snapshot()))
            except OSError as error:
                print(f"horovodrun: the report {self._report}: {error.strerror}", file=sys.stderr)
        if self._dashboard is not None:
            self._dashboard.close()


def _record(args: argparse.Namespace) -> JobRecord:
    """Where the job's events go. OSError names a file that was asked for."""
    files = [] if args.event_log is None else [Path(args.event_log)]
    if args.output_filename is not None and not args.no_event_log:
        files.append(Path(args.output_filename, EVENTS))
    return JobRecord(EventLog(), environ=os.environ, keep=not args.no_event_log, files=files)


def _dashboard_wanted(args: argparse.Namespace) -> bool:
    return bool(args.dashboard or args.dashboard_address is not None)
