"""The learning rates and epochs are those in the tables of the tutorial that the example follows."""

from __future__ import annotations

import math

import pytest
from imagenet_training.schedule import Length, Schedule

IMAGES = 1281167
# step, epoch, learning rate: synthetic data on 4 GPUs, then 90 epochs on 32 GPUs, 256 images each
SYNTHETIC = [
    (0, 0.0, 6.40000),
    (1, 0.0, 6.38721),
    (100, 0.1, 5.18400),
    (200, 0.2, 4.09600),
    (300, 0.2, 3.13600),
    (400, 0.3, 2.30401),
]
NINETY_EPOCHS = [
    (0, 0.0, 0.00100),
    (1, 0.0, 0.00305),
    (50, 0.3, 0.10353),
    (100, 0.6, 0.20606),
    (250, 1.6, 0.51366),
    (400, 2.6, 0.82126),
    (13750, 87.9, 0.00217),
    (13800, 88.2, 0.00156),
    (13850, 88.6, 0.00104),
    (13900, 88.9, 0.00064),
    (13950, 89.2, 0.00033),
    (14000, 89.5, 0.00012),
    (14050, 89.8, 0.00002),
]


@pytest.mark.parametrize(
    ("processes", "steps", "warmup_epochs", "peak", "table"),
    [(4, 1000, 0, 6.4, SYNTHETIC), (32, None, 10, 3.2, NINETY_EPOCHS)],
)
def test_tables(
    processes: int,
    steps: int | None,
    warmup_epochs: float,
    peak: float,
    table: list[tuple[int, float, float]],
) -> None:
    length = Length(IMAGES, 256 * processes)
    schedule = Schedule(peak, steps or length.steps(90), length.warmup_steps(warmup_epochs))
    assert steps or (schedule.steps == 14075 and f"{length.epoch(14075):.1f}" == "90.0")
    for step, epoch, rate in table:
        # The tables were printed from 32-bit numbers: the last digit may differ.
        assert abs(schedule.rate(step) - rate) < 0.6e-5, step
        assert f"{length.epoch(step):.1f}" == f"{epoch:.1f}", step


def test_cosine() -> None:
    schedule = Schedule(1.0, 110, 10, "cosine")
    assert math.isclose(schedule.rate(10), 1.0) and math.isclose(schedule.rate(60), 0.5, abs_tol=1e-4)
    assert schedule.rate(110) < 1e-4
    rates = [schedule.rate(step) for step in range(10, 111)]
    assert rates == sorted(rates, reverse=True)


def test_more_images_in_a_step_than_there_are() -> None:
    length = Length(100, 400)
    assert length.steps(8) == 2 and length.warmup_steps(4) == 1 and length.epoch(2) == 8.0
