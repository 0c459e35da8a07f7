"""For checks, which run in workers without pytest: expected exceptions, several cases, reasons to skip."""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@contextlib.contextmanager
def raises(kind: type[BaseException], *texts: str) -> Iterator[None]:
    """The block must raise `kind` with all `texts` in its message."""
    try:
        yield
    except kind as error:
        for text in texts:
            assert text in str(error), f"{text!r} is not in {str(error)!r}"
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


def refused_splits(hvd: Any, tensor: Any, wrong: Iterable[Any], uneven: Any) -> None:
    """alltoall() of `tensor`, which has a row for each rank, takes none of the splits in `wrong`, and that of
    `uneven` needs some."""
    for splits in wrong:
        with raises(ValueError):
            hvd.alltoall(tensor, splits=splits)
    with raises(ValueError):
        hvd.alltoall(uneven)
    # Un-named calls that were refused do not count: the next one matches even if only one rank was refused.
    if hvd.rank() == 0:
        with raises(ValueError):
            hvd.alltoall(tensor, splits=[5] * hvd.size())
    assert hvd.alltoall(tensor).shape == tensor.shape


def cases(*names: str) -> Callable[[Function], Function]:
    """A check for each name, which it takes as its argument. Strings, as they are read without an import."""
    del names
    return lambda check: check


def skip(reason: str) -> NoReturn:
    """This rank leaves the check out; all should, for the same reason."""
    raise unittest.SkipTest(reason)
