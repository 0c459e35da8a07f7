"""What the workers of an elastic job write: shown under the rank that a worker has at that time."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import BinaryIO

from horovod.runner.launcher.output import Console, Prefixer, Tail, create

_STREAMS = ("stdout", "stderr")


class WorkerOutput:
    """Routes what each worker writes to the console and, if wanted, to the files of its rank."""

    def __init__(self, console: Console, directory: str | None = None, timestamps: bool = False) -> None:
        self._console = console
        self._directory = directory
        self._timestamps = timestamps
        self._ranks: dict[int, int] = {}  # by worker
        self._prefixers: dict[tuple[int, str], Prefixer] = {}
        self._tails: dict[int, Tail] = {}
        self._files: dict[tuple[int, str], BinaryIO] = {}  # by rank
        self._broken: set[tuple[int, str]] = set()

    def add(self, worker: int, rank: int) -> None:
        """A worker is started."""
        self._ranks[worker] = rank
        self._tails[worker] = Tail()
        for stream in _STREAMS:
            self._prefixers[worker, stream] = Prefixer(partial(self._prefix, worker, stream))

    def workers(self) -> set[int]:
        """Those whose output is still of interest."""
        return set(self._ranks)

    def renumber(self, worker: int, rank: int) -> None:
        """A worker has another rank from now on."""
        for stream in _STREAMS:
            self._emit(worker, stream, self._prefixers[worker, stream].flush())
        self._ranks[worker] = rank

    def feed(self, worker: int, stream: str, data: bytes) -> None:
        """Takes what a worker wrote to "stdout" or "stderr"; nothing of one that was forgotten."""
        if worker not in self._ranks:
            return  # someone outside the job held its pipe
        if stream == "stderr":
            self._tails[worker].feed(data)
        self._emit(worker, stream, self._prefixers[worker, stream].feed(data))

    def tail(self, worker: int) -> list[str]:
        """The last lines that a worker wrote to stderr; none of one that was forgotten."""
        tail = self._tails.get(worker)
        return [] if tail is None else tail.lines()

    def forget(self, worker: int) -> None:
        """A worker is gone, and its last words are of no interest any more."""
        self._ranks.pop(worker, None)
        self._tails.pop(worker, None)
        for stream in _STREAMS:
            self._prefixers.pop((worker, stream), None)

    def finish(self, worker: int) -> None:
        """Passes on its unfinished lines."""
        for stream in _STREAMS:
            if (worker, stream) in self._prefixers:
                self._emit(worker, stream, self._prefixers[worker, stream].flush())

    def close(self) -> None:
        """Passes on unfinished lines and closes the files."""
        for worker in list(self._ranks):
            self.finish(worker)
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _prefix(self, worker: int, stream: str) -> bytes:
        plain = f"[{self._ranks[worker]}]<{stream}>:".encode()
        return time.asctime().encode() + plain if self._timestamps else plain

    def _emit(self, worker: int, stream: str, data: bytes) -> None:
        if not data:
            return
        self._console.put(stream, data)
        place = (self._ranks[worker], stream)
        if self._directory is None or place in self._broken:
            return
        view = memoryview(data)
        path = Path(self._directory) / f"rank.{place[0]}"
        try:
            if place not in self._files:
                # Ranks may have been other processes: what these wrote stays.
                self._files[place] = create(path, stream, append=True)
            while view:
                view = view[self._files[place].write(view) :]
        except OSError as error:
            # A full disk must not end the training; say it once and go on without this file.
            self._broken.add(place)
            text = f"horovodrun: writing {path / stream} failed: {error.strerror}\n"
            self._console.put("stderr", text.encode(errors="backslashreplace"))
