"""Each scenario is run with each framework; what is quick, with torch, at every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_job import FRAMEWORKS, Training
from util_packages import needs

Start = Callable[..., Training]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trainings and sees to it that nothing is left of them."""
    running: list[Training] = []

    def begin(framework: str, *flags: str, **options: Any) -> Training:
        needs(FRAMEWORKS[framework])
        directory = tmp_path / f"job{len(running)}"
        directory.mkdir()
        running.append(Training(directory, framework, *flags, **options))
        return running[-1]

    yield begin
    for training in running:
        training.__exit__()


@pytest.fixture(params=["numpy", *(pytest.param(name, marks=pytest.mark.slow) for name in FRAMEWORKS)])
def framework(request: pytest.FixtureRequest) -> str:
    """Each of steps_trained.py."""
    if request.param in FRAMEWORKS:
        needs(FRAMEWORKS[request.param])
    return str(request.param)
