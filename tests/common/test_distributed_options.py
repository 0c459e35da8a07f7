"""The options of distributed optimizers and tapes: what is refused, in which words, what goes together."""

from __future__ import annotations

import math
from typing import Any

import pytest

import horovod.numpy as hvd
from horovod.common.distributed_options import (
    DistributedOptions,
    check_passes,
    checked_groups,
    checked_layers,
    partition,
)


class Layer:
    """Stands for a layer or a parameter."""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"op": 77}, "op must be hvd.Average, hvd.Sum or hvd.Adasum, got 77"),
        ({"op": hvd.Min}, "op must be hvd.Average, hvd.Sum or hvd.Adasum, got hvd.Min"),
        (
            {"op": hvd.Adasum, "ops": (hvd.Average, hvd.Sum)},
            "op must be hvd.Average or hvd.Sum, got hvd.Adasum",
        ),
        (
            {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
            "gradient_predivide_factor works with op=hvd.Average only",
        ),
        ({"gradient_predivide_factor": -1.0}, "gradient_predivide_factor must be positive, got -1.0"),
        ({"gradient_predivide_factor": math.nan}, "gradient_predivide_factor must be positive, got nan"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step must be at least 1, got 0"),
        (
            {"op": hvd.Adasum, "average_aggregated_gradients": True},
            "average_aggregated_gradients does not go with op=hvd.Adasum",
        ),
    ],
)
def test_what_makes_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        DistributedOptions(**options)
    assert str(caught.value) == text


def test_factors_of_predivision() -> None:
    assert DistributedOptions().factors() == {"prescale_factor": 1.0, "postscale_factor": 1.0}
    options = DistributedOptions(gradient_predivide_factor=4.0)
    assert options.factors() == {"prescale_factor": 0.25, "postscale_factor": 4.0}


def test_passes() -> None:
    check_passes(1)
    with pytest.raises(ValueError, match="at least 1, got -3"):
        check_passes(-3)


def test_groups() -> None:
    a, b = Layer(), Layer()
    assert checked_groups(None, 0, Layer) is None
    assert checked_groups(3, 0, Layer) == 3
    assert checked_groups([[a], (b,)], 0, Layer) == [[a], (b,)]
    with pytest.warns(DeprecationWarning, match="num_groups is deprecated") as caught:
        assert checked_groups(None, 2, Layer) == 2
    assert caught[0].filename == __file__
    for wrong in (0, -1, True, 1.5, "all", [a], ["ab"], [["a"]], [[a, "a"]]):
        with pytest.raises(ValueError, match="groups must be a positive number or lists of parameters, got"):
            checked_groups(wrong, 0, Layer)
    for wrong in ([[a, a]], [[a], [b, a]]):
        with pytest.raises(ValueError, match="groups must not have a parameter twice"):
            checked_groups(wrong, 0, Layer)


def test_partition() -> None:
    parameters = [Layer() for _ in range(5)]
    a, b, c, d, e = parameters
    assert partition(parameters, 2) == [range(0, 3), range(3, 5)]
    assert partition(parameters, 9) == [range(i, i + 1) for i in range(5)]
    assert partition(parameters, [[d, b], [c, Layer()]]) == [[0], [1, 3], [2], [4]]
    assert partition([], 3) == partition([], [[a, e]]) == []


def test_layers() -> None:
    layer = Layer()
    assert checked_layers(None, Layer) == []
    assert checked_layers(layer, Layer) == checked_layers([layer], Layer) == [layer]
    assert checked_layers((one for one in (layer, layer)), Layer) == [layer, layer]
    for wrong in ("dense", [layer, "dense"], 5):
        with pytest.raises(ValueError, match="local_layers must be a Keras layer or several, got"):
            checked_layers(wrong, Layer)
