"""Expected exceptions, for checks that run in workers without pytest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


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
