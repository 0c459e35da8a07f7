"""Compiled programs, in which ranks and sizes are, when the ranks change. The slow rows have the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from elastic_job import A, B, Training
from test_rows_faults import FOUR, check_survivors, fault
from test_rows_hosts import grown_and_shrunk

Start = Callable[..., Training]
pytestmark = pytest.mark.timeout(300)


def test_programs_of_the_survivors(start: Start) -> None:
    job = start("jax", *FOUR, "-H", f"{A}:2,{B}:2", faults=[fault(0)])
    job.succeed()
    check_survivors(job)


def test_newcomers_get_the_state(start: Start) -> None:
    grown_and_shrunk(start, "jax", 1)


@pytest.mark.slow
def test_keras_on_jax(start: Start) -> None:
    """Variables are elsewhere while fit() runs, which is when every batch is committed."""
    environment = {"KERAS_BACKEND": "jax"}
    job = start("keras", *FOUR, hosts=f"{A}:2\n{B}:2\n", faults=[fault(0)], environment=environment)
    job.succeed()
    check_survivors(job)
