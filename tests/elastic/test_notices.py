"""The standing connection of a worker: notices, reports, and what SIGTERM means."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from director import Director, directed

from horovod.runner.elastic.notices import notices_purpose

PROGRAM = Path(__file__).with_name("program_notices.py")


def running(director: Director) -> int:
    """The number of a worker whose connection stands."""
    worker = director.start()
    director.enlisted([worker], 0)
    director.stands([worker], director.assign([worker]))
    assert heard(director, worker, "timing")[0]["stage"] == "connect"  # and its connection stands
    return worker


def said(director: Director, key: str) -> list[Any]:
    return [line[key] for line in director.lines if key in line]


def heard(director: Director, worker: int, kind: str) -> list[dict[str, Any]]:
    """Waits for a report of this kind."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found.extend(each for each in director.notices.on_readable(worker) if each["type"] == kind)
        return bool(found)

    director.until(look, kind)
    return found


def update(sequence: int, result: int = 2) -> dict[str, Any]:
    return {"type": "hosts_updated", "sequence": sequence, "result": result, "deadline": None}


def test_notices_arrive_once_even_if_the_connection_breaks(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = running(director)
        director.notices.broadcast(update(1))
        director.until(lambda: said(director, "sequence") == [1], "the first notice")
        director.notices.drop(worker)
        director.until(lambda: worker in director.notices.descriptors().values(), "another connection")
        director.notices.broadcast(update(2, 1))
        director.until(lambda: said(director, "sequence") == [1, 2], "the second notice")
        assert said(director, "result") == [2, 1]
        assert not any(line.get("generation") == 2 for line in director.lines)
        director.finish([worker])


def test_only_notices_that_a_world_does_not_know_are_kept(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = running(director)
        director.notices.broadcast(update(5))
        director.until(lambda: said(director, "sequence") == [5], "a notice")
        (tmp_path / "stop.again").touch()
        director.enlisted([worker], 1)
        director.stands([worker], director.assign([worker], sequence=7))
        director.notices.broadcast(update(6))  # this world knows of it
        director.notices.broadcast(update(8))
        director.until(lambda: len(said(director, "sequence")) == 2, "another one")
        assert said(director, "sequence") == [5, 8]
        director.finish([worker])


def test_a_forked_child_has_no_connection_and_ends_when_told(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = running(director)
        director.until(lambda: bool(said(director, "sockets")), "the child")
        assert said(director, "sockets") == [0]
        director.finish([worker])
        director.until(lambda: bool(said(director, "child_ended_by")), "its end")
        assert said(director, "child_ended_by") == [-signal.SIGTERM]


def test_sigterm_is_passed_on_and_the_worker_goes_on(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM, HOROVOD_PREEMPTION_GRACE="12") as director:
        worker = running(director)
        os.kill(director.workers[worker].pid, signal.SIGTERM)
        assert heard(director, worker, "leaving")[0]["seconds"] == 12.0
        (tmp_path / "stop.again").touch()  # it lives
        director.enlisted([worker], 1)
        director.server.refuse(worker, "its host is taken away")
        assert director.workers[worker].wait(60) == 0


def test_sigterm_is_the_end_when_the_launcher_ends_the_job(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = running(director)
        os.kill(director.workers[worker].pid, signal.SIGTERM)
        heard(director, worker, "leaving")
        director.notices.send(worker, {"type": "ending"})
        assert director.workers[worker].wait(60) == -signal.SIGTERM


def test_sigterm_is_the_end_when_nobody_can_be_told(tmp_path: Path) -> None:
    with directed(tmp_path, PROGRAM) as director:
        worker = running(director)
        director.server.forget(notices_purpose(worker))
        director.notices.drop(worker)

        def ended() -> bool:
            # It notices that the connection is gone a moment later; until then it asks.
            os.kill(director.workers[worker].pid, signal.SIGTERM)
            return director.workers[worker].poll() is not None

        director.until(ended, "its end")
        assert director.workers[worker].returncode == -signal.SIGTERM
