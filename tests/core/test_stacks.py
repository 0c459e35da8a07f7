"""What is shown of a thread's stack."""

from __future__ import annotations

import threading
from collections.abc import Callable

from horovod.common import observer


def _nested(depth: int, innermost: Callable[[], str]) -> str:
    return _nested(depth - 1, innermost) if depth else innermost()


def test_the_line_of_the_program_is_shown_however_deep_the_stack_is() -> None:
    """A framework's own frames are many: the outermost are those of the program."""
    (line,) = _nested(40, lambda: observer.stacks()).splitlines()[:1]
    thread, _, frames = line.partition(": ")
    places = frames.split(" <- ")
    assert thread == "MainThread"
    assert "observer.py" in places[0] and "_nested" in places[3]
    assert places.count("...") == 1 and len(places) == 13
    assert places[-1].endswith(("<module>", "_run_module_as_main")), places


def test_threads_of_horovod_are_left_out() -> None:
    """But for loaders of data, which run code of the program."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, name=name) for name in ("hvd-notices", "hvd-data-x")]
    for thread in threads:
        thread.start()
    found = observer.stacks()
    end.set()
    for thread in threads:
        thread.join()
    assert "hvd-notices" not in found and "hvd-data-x: " in found


def test_a_short_stack_is_whole() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(observer.stacks()), name="mine")
    thread.start()
    thread.join()
    (line,) = [line for line in found[0].splitlines() if line.startswith("mine: ")]
    assert "..." not in line and line.endswith("_bootstrap")
