"""Which of several failures the launcher names as the cause."""

from __future__ import annotations

import pytest

from horovod.runner.launcher.failure import cause

CONSEQUENCE = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "horovod.common.exceptions.HorovodInternalError: rank 1 (host a, pid 5) was killed by signal 9.",
]
CHAINED = [
    *CONSEQUENCE,
    "During handling ...",
    "Traceback (most recent call last):",
    "RuntimeError: I give up",
]
OWN = ["Traceback (most recent call last):", "ValueError: a HorovodInternalError is not what this is"]


@pytest.mark.parametrize(
    ("ends", "index"),
    [
        ([(1, OWN)], 0),
        ([(1, CONSEQUENCE)], 0),
        ([(1, CONSEQUENCE), (1, OWN)], 1),
        ([(1, CHAINED), (1, CONSEQUENCE), (3, [])], 2),
        ([(1, OWN), (1, CONSEQUENCE), (1, OWN)], 0),
        ([(1, CONSEQUENCE), (-9, CONSEQUENCE)], 1),
        # All say that another one is to blame, such as a rank that was stopped.
        ([(1, CONSEQUENCE), (1, CHAINED)], 0),
    ],
)
def test_cause(ends: list[tuple[int, list[str]]], index: int) -> None:
    assert cause(ends) == index
