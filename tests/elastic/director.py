"""A launcher in miniature: starts workers of an elastic job here, without agents, and gives them
places."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from horovod._bootstrap.rendezvous.enlistment import Enlisted, Event, Withdrawn, WorldFailed, WorldReady
from horovod._bootstrap.rendezvous.server import RendezvousServer
from horovod.runner.elastic.notices import Notices, notices_purpose

PATIENCE = 60.0


class Director:
    """Events of the server, and what workers print, arrive in lists that until() watches."""

    def __init__(self, directory: Path, program: str | Path, env: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.stop = directory / "stop"
        self._program = program
        self._env = env or {}
        self.key = secrets.token_bytes(32)
        self.server = RendezvousServer(self.key)
        self.server.start()
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.server.on_elastic(lambda event: self._queue.put(lambda: self.events.append(event)))
        self.notices = Notices(lambda: None)
        self.events: list[Event] = []
        self.lines: list[dict[str, Any]] = []
        self.errors: dict[int, str] = {}
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self._next = 1
        self.generation = 0

    def start(self, rank: int = 0, size: int = 1) -> int:
        worker, self._next = self._next, self._next + 1
        self.server.expect(worker)
        self.server.accept(notices_purpose(worker), partial(self.notices.add, worker))
        env = {
            **os.environ,
            "HOROVOD_ELASTIC": "1",
            "_HOROVOD_WORKER": str(worker),
            "HOROVOD_HOSTNAME": "localhost",
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(size),
            "HOROVOD_LOCAL_RANK": str(rank),
            "HOROVOD_LOCAL_SIZE": str(size),
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.server.port),
            "_HOROVOD_SECRET_KEY": self.key.hex(),
            "PYTHONUNBUFFERED": "1",
            **self._env,
        }
        process = subprocess.Popen(
            [sys.executable, str(self._program), str(self.stop)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.workers[worker] = process
        threading.Thread(target=self._read, args=(worker, process), daemon=True).start()
        return worker

    def _read(self, worker: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                self._queue.put(partial(self.lines.append, said))
        text = process.stderr.read()
        self._queue.put(lambda: self.errors.__setitem__(worker, text))

    def turn(self, seconds: float) -> None:
        """Takes in what has arrived."""
        self.notices.descriptors()
        with contextlib.suppress(queue.Empty):
            self._queue.get(timeout=seconds)()
            while True:
                self._queue.get_nowait()()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (
                f"{what}: {self.events}, {self.lines}, {self.errors}, "
                f"{[(number, process.poll()) for number, process in self.workers.items()]}"
            )
            self.turn(0.05)

    def enlisted(self, workers: Sequence[int], generation: int) -> list[Enlisted]:
        """Waits until all have enlisted that were in that world last; their newest words."""

        def found() -> dict[int, Enlisted]:
            return {
                event.worker: event
                for event in self.events
                if isinstance(event, Enlisted) and event.generation == generation
            }

        self.until(lambda: set(workers) <= found().keys(), f"{workers} after generation {generation}")
        return [found()[worker] for worker in workers]

    def assign(self, workers: Sequence[int], **more: Any) -> int:
        """Makes a world of these, in order of rank, on one host."""
        self.generation += 1
        size = len(workers)
        self.server.assign(
            {
                worker: {
                    "generation": self.generation,
                    "rank": rank,
                    "size": size,
                    "local_rank": rank,
                    "local_size": size,
                    "cross_rank": 0,
                    "cross_size": 1,
                    "addresses": [],
                    "sync": True,
                    "source": 0,
                    "reason": "test",
                    "sequence": 0,
                    **more,
                }
                for rank, worker in enumerate(workers)
            }
        )
        return self.generation

    def stands(self, workers: Sequence[int], generation: int) -> None:
        """Waits until all have said that they are in that world."""
        self.until(
            lambda: (
                WorldReady(generation) in self.events
                and {line["worker"] for line in self.lines if line.get("generation") == generation}
                >= set(workers)
            ),
            f"generation {generation} of {workers}",
        )

    def withdrawn(self, worker: int) -> bool:
        return any(isinstance(event, Withdrawn) and event.worker == worker for event in self.events)

    def failed(self, generation: int) -> WorldFailed | None:
        return next(
            (
                event
                for event in self.events
                if isinstance(event, WorldFailed) and event.generation == generation
            ),
            None,
        )

    def finish(self, workers: Sequence[int]) -> None:
        """Lets the program end by itself."""
        self.stop.touch()
        for worker in workers:
            assert self.workers[worker].wait(PATIENCE) == 0

    def close(self) -> None:
        self.server.stop()
        self.notices.close()
        for process in self.workers.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def directed(directory: Path, program: str | Path, **env: str) -> Iterator[Director]:
    director = Director(directory, program, env)
    try:
        yield director
    finally:
        director.close()
