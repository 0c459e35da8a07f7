"""Names and groups of parameters, without processes."""

from typing import Any

import pytest
from util_packages import Lazy, needs

needs("torch")
torch = Lazy("torch")
names = Lazy("horovod.torch._parameter_names")


def parameters(count: int) -> list[Any]:
    return [torch.nn.Parameter(torch.zeros(1)) for _ in range(count)]


def test_unnamed_parameters_go_by_their_place() -> None:
    a, b, c = parameters(3)
    found = names.name_parameters([{"params": [a, b]}, {"params": [c]}], None)
    assert list(found.values()) == [
        "allreduce.noname.0.0",
        "allreduce.noname.0.1",
        "allreduce.noname.1.0",
    ]


def test_named_parameters_come_in_the_optimizers_order() -> None:
    a, b, other = parameters(3)
    given = iter([("b", b), ("other", other), ("a", a), ("b again", b)])
    found = names.name_parameters([{"params": [a, b]}], given)
    assert [(found[p], p is q) for p, q in zip(found, (a, b), strict=True)] == [("a", True), ("b", True)]


@pytest.mark.parametrize(
    ("count", "parts", "sizes"),
    [(7, 3, [2, 2, 3]), (6, 2, [3, 3]), (2, 5, [1, 1]), (1, 1, [1]), (0, 3, [])],
)
def test_even_split(count: int, parts: int, sizes: list[int]) -> None:
    given = parameters(count)
    split = names.split_evenly(given, parts)
    assert [len(part) for part in split] == sizes
    flat = [member for part in split for member in part]
    assert len(flat) == count and all(x is y for x, y in zip(flat, given, strict=True))


def test_listed_groups_and_the_rest_alone() -> None:
    a, b, c, d, stranger = parameters(5)
    split = names.with_singles([a, b, c, d], [[c, a], [stranger], [stranger, d]])
    assert [[id(p) for p in part] for part in split] == [[id(c), id(a)], [id(d)], [id(b)]]
