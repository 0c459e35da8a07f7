"""How late this process gets a processor: a busy machine is not to be taken for a slow program."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from pathlib import Path

# Until a process has learned of something and said so, several threads have had to wake up.
_HOPS = 5
_PAUSE = 0.005
_EVERY = 10  # so many pauses are between two looks at all threads


class Lag:
    """Measures it, in a thread of its own, until stop()."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=20_000)
        # How long each thread has waited for a processor while it could run, in nanoseconds.
        self._waited: deque[tuple[float, dict[str, int]]] = deque([(time.monotonic(), _waits())], maxlen=2000)
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            for _ in range(_EVERY):
                before = time.monotonic()
                time.sleep(_PAUSE)
                now = time.monotonic()
                self._late.append((now, now - before - _PAUSE))
            self._look()

    def _look(self) -> dict[str, int]:
        _, before = self._waited[-1]
        found = {**before, **_waits()}  # those that have ended, too
        self._waited.append((time.monotonic(), found))
        return found

    def allowance_since(self, when: float) -> float:
        """Seconds by which something may be late because this process did not get a processor."""
        late = max((late for at, late in list(self._late) if at >= when), default=0.0)
        now = self._look()
        _, then = next((each for each in reversed(list(self._waited)) if each[0] <= when), self._waited[0])
        waited = sum(max(0, total - then.get(thread, 0)) for thread, total in now.items())
        return _HOPS * late + 1e-9 * waited


def _waits() -> dict[str, int]:
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended; or this kernel does not tell
            found[task.name] = int((task / "schedstat").read_text().split()[1])
    return found
