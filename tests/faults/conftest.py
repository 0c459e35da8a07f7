"""Jobs whose ranks are made to fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_job import GRACE, Job, StartJob


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartJob]:
    """Starts the job of a test. Whatever the test leaves behind is ended, whether it passes or not."""
    jobs: list[Job] = []

    def start_job(np: int, program: str, *arguments: str, grace: float = GRACE, **environment: str) -> Job:
        directory = tmp_path / str(len(jobs))
        directory.mkdir()
        jobs.append(Job(directory, np, program, *arguments, grace=grace, **environment))
        return jobs[-1]

    yield start_job
    for job in jobs:
        job.launcher.destroy()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How long the survivors took to notice, by the victim's end."""
    delays: dict[str, list[float]] = defaultdict(list)
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if report.when == "call" and name.startswith("noticed "):
                delays[name].append(1000 * value)
    for name, values in sorted(delays.items()):
        median = sorted(values)[len(values) // 2]
        figures = f"median {median:.0f} ms, worst {max(values):.0f} ms of {len(values)}"
        terminalreporter.write_line(f"{name}: {figures}")
